"""The passes of the pack over whole graphs."""
