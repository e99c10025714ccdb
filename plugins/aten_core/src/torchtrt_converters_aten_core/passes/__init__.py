"""Rewrites of a whole graph, before anyone is asked who converts what."""
