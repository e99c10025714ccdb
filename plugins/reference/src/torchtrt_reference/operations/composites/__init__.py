"""Layers that stand for several others."""
