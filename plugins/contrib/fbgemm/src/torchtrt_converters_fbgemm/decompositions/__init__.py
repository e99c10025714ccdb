"""The ops of FBGEMM, as formulas of PyTorch's ops."""
