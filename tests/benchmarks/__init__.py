"""Measurements, run by `make bench`, which writes docs/benchmarks.md.

Everything is a ratio or a difference of things measured in turn in one run: machines differ and drift.
"""
