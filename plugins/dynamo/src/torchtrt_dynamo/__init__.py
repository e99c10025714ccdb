"""The way in for ``torch.compile(model, backend="torchtrt")``. PyTorch finds it through its own entry points."""
