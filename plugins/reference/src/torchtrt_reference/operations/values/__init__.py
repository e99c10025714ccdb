"""Values that are made or changed element by element."""
