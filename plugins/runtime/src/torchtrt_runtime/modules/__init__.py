"""Modules that run engines: one for each engine, and one for the model around them."""
