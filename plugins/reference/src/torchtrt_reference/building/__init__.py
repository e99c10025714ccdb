"""From a network definition to a plan: lowering, precision, fusion, scheduling, serialization."""
