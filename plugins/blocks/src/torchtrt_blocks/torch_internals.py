"""The parts of PyTorch without a public name that the building blocks use. They ran with PyTorch 2.11, 2.13 and 2.15.

``pytree`` flattens nested containers. ``torch.utils.pytree`` of later versions is not in 2.13.
"""

from torch.utils import _pytree as pytree

__all__ = ["pytree"]
