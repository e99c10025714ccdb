"""Ops computed by other ops, one module for each family."""
