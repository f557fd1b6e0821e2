"""For all tests."""

import gc

# TensorFlow's graphs are made of many small objects that refer to one another: looking for garbage
# as often as Python does takes a tenth of the time in which they are made.
gc.set_threshold(100_000, 20, 100)
