"""What a program builds a network with: the definition, its tensors, layers and weights."""
