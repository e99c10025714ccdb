"""The parts of PyTorch without a public name that the pack uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``pytree`` flattens nested containers. ``torch.utils.pytree`` of later versions is not in 2.13.
``OpOverload`` is the class of ops, which PyTorch returns from ``torch.ops``. It has no public name.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch._ops import OpOverload
from torch.utils import _pytree as pytree

__all__ = ["OpOverload", "python_dispatcher", "pytree"]


def python_dispatcher() -> AbstractContextManager[Any]:
    """Returns a context in which ops run the Python kernels that a trace needs.

    It wraps ``torch._dispatch.python.enable_python_dispatcher``, whose import takes long.
    """
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()
