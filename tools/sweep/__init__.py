"""Sizes, masks and forms that no case has, on the TensorRT in use: ``python -m tools.sweep``."""
