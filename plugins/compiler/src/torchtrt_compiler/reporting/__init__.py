"""The report of a compilation: what runs where and why, and which settings had no effect."""
