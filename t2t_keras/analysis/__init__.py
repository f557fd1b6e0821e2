"""Analysis of trained models: attention weights, their plots, counts of weights and FLOPs."""
