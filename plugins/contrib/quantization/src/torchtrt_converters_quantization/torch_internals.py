"""The parts of PyTorch without a public name that the pack uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``OpOverload`` is the class of ops, which PyTorch returns from ``torch.ops``. It has no public name.
"""

from torch._ops import OpOverload

__all__ = ["OpOverload"]
