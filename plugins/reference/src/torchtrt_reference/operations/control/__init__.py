"""Loops and conditionals: the layers at their boundary, and what a build makes of them."""
