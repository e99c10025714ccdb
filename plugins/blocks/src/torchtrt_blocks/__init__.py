"""Building blocks: what converters are made of, and what other packs may compose.

Each module holds one family. A block takes the conversion context first, then network tensors and
plain numbers, and returns a network tensor. Blocks add only the layers that the
result needs: a cast to the same dtype or a reshape to the same shape returns the tensor it was
given.
"""
