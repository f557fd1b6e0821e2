"""Datasets in the layout of TFDS; importing the package of a dataset registers it."""
