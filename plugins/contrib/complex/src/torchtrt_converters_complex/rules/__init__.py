"""The rules: one module for each family of ops."""
