"""Contexts in which models are exported, so that ops stay whole."""
