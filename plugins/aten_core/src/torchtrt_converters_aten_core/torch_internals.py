"""The parts of PyTorch without a public name that the pack uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``pytree`` flattens nested containers. ``torch.utils.pytree`` of later versions is not in 2.13.
``without_modes`` turns the modes of a trace off inside a ``with`` block, so that code computes. It has no public name.
``sym_sqrt`` is the target of calls that compute the square root of a size. It has no public name.
``while_loop`` is the function of the op that exported loops have. It has no public name.
"""

import torch
from torch._higher_order_ops import while_loop
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes as without_modes

sym_sqrt = torch._sym_sqrt  # type: ignore[attr-defined]

__all__ = ["pytree", "sym_sqrt", "while_loop", "without_modes"]
