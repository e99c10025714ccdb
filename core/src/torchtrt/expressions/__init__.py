"""Expressions of sizes: as data that files hold, and their values for sizes of a call."""
