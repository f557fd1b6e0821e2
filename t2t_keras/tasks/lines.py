"""Many lines through a function of batches: sorted for speed, given back in order."""

import itertools


def in_order_of_length(function, lines, batch_size=64, window=64):
    """Applies a function to batches of lines of like length.

    Padding and idle beams cost time wherever short and long sentences share a batch, so that
    each window of lines is sorted first; its results come out in the order of its lines.

    Args:
        function: function of a list of str, to a sequence of one result for each.
        lines: iterable of str, read a window at a time.
        batch_size: lines of a batch.
        window: batches that are sorted together.

    Yields:
        One result for each line, in the order of the lines.

    Example:
        >>> for translation in in_order_of_length(translator, open("text.en")):
        ...     print(translation)
    """
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, batch_size * window)):
        # Longest first: what needs too much memory fails at once.
        order = sorted(range(len(chunk)), key=lambda i: -len(chunk[i]))
        results = [None] * len(chunk)
        for start in range(0, len(chunk), batch_size):
            places = order[start : start + batch_size]
            batch = function([chunk[i] for i in places])
            for place, result in zip(places, batch, strict=True):
                results[place] = result
        yield from results
