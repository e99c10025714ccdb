"""The report of a compilation, as data and as tables."""
