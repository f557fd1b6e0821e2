"""What a trained model does and what it costs: `attention`, `plots` of it, `counts` of FLOPs."""
