"""Helpers that the tests of every distribution share."""
