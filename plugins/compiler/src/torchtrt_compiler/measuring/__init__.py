"""Time: how long each layer and op of a compiled model takes, and which settings make it the fastest."""
