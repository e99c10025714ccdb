"""The built form of a network: a graph over numbered slots, its plan, and how it is executed."""
