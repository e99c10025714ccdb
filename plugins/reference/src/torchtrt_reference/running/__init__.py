"""From a plan to results: engines, execution contexts, and the executable that PyTorch executes."""
