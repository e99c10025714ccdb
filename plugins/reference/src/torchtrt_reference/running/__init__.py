"""From a plan to results: engines, execution contexts, and the program that PyTorch executes."""
