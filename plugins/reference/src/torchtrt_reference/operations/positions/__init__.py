"""Elements that move, or are chosen by their position."""
