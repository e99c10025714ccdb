"""Groups of processes that compute together, and how they exchange tensors."""
