"""What the pack does to whole graphs."""
