"""Rewrites of a whole graph, before converters are looked up."""
