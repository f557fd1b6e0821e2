"""A page to look at: an exported translator and its attention in a browser."""
