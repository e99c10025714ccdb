"""Saved models: files that are exported programs, which call their engines through an operator."""
