"""The parts of PyTorch without a public name that the pack uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``without_modes`` turns the modes of a trace off inside a ``with`` block, so that code computes. It has no public name.
"""

from torch.utils._python_dispatch import _disable_current_modes as without_modes

__all__ = ["without_modes"]
