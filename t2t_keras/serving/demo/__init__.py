"""A demo page: an exported translator and its attention in a browser."""
