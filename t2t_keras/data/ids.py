"""The four ids that every vocabulary of this library begins with."""

PAD_ID = 0
"""Fills up shorter sequences; weighs nothing."""
END_ID = 1
"""The last id of every source and every target."""
UNKNOWN_ID = 2
"""What no piece spells; byte pieces leave nothing to it, it is kept for foreign models."""
START_ID = 3
"""The first input of the decoder."""
