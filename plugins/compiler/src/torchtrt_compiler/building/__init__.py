"""Engines: a network of each block, its plan, and the checks of what it computes."""
