"""From a network definition to a plan: configuration, lowering, and the passes over the graph."""
