"""Ways to run the graph of a compiled model: op by op, with Inductor's code between engines, as a CUDA graph."""
