"""The parts of PyTorch without a public name that the core uses, and the distributions that are no packs.

They ran with PyTorch 2.11, 2.13 and 2.15. ``tests/test_boundaries.py`` forbids private names elsewhere.

Classes and modules keep PyTorch's own names:

- ``OpOverload``, ``OpOverloadPacket``, ``HigherOrderOperator``, ``OperatorBase``: the classes of ops. PyTorch returns
  their instances from ``torch.ops``, and has no public name for the classes.
- ``pytree``: nested containers. ``torch.utils.pytree`` of later versions is not in 2.13.
"""

from __future__ import annotations

import torch
from torch._ops import HigherOrderOperator, OperatorBase, OpOverload, OpOverloadPacket
from torch.utils import _pytree as pytree

__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "OperatorBase",
    "print_options",
    "pytree",
    "registered_ops",
]


def registered_ops() -> list[str]:
    """Returns the names of all ops that libraries have registered, as ``aten::add.Tensor``.

    It wraps ``torch._C._dispatch_get_all_op_names``. There is no public function that lists ops.
    """
    names: list[str] = torch._C._dispatch_get_all_op_names()
    return names


def print_options() -> dict[str, object]:
    """Returns the options that ``torch.set_printoptions`` sets.

    It wraps ``torch._tensor_str.PRINT_OPTS``, for which PyTorch has a public setter alone.
    """
    from torch._tensor_str import PRINT_OPTS

    return dict(vars(PRINT_OPTS))
