"""Everything that has a known answer, on the TensorRT in use: ``python -m tools.sweep``."""
