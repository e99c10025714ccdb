"""Passes that recognize what a current TensorRT has a layer for."""
