"""What every layer's knowledge is made of: facts about tensors, the base of all operations, and their evaluation."""
