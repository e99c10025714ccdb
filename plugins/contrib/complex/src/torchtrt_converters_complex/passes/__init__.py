"""Lowering passes."""
