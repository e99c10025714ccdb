"""The parts of a network: the definition, its tensors, layers and weights."""
