"""Weights for engines: how they follow from the model's, and engines whose plans have none."""
