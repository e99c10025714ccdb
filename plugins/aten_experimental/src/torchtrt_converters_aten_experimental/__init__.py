"""Converters that are new, need a recent TensorRT, or make outputs whose size depends on data."""
