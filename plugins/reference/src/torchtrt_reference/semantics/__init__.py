"""The vocabulary of operations: facts about tensors, the base of all operations, and their evaluation."""
