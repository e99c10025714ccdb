"""Engines that were built before: found by everything that changes an engine, and by nothing else."""
