"""Rewrites of a graph: what is constant is computed, what is equal is merged, what PyTorch has in one is fused."""
