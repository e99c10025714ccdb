"""Decompositions: functions with an op's own signature."""
