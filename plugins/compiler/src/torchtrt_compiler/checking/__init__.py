"""Compiled models beside eager PyTorch: the differences of their results."""
