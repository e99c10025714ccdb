"""The parts of PyTorch without a public name that the pack uses. They ran with PyTorch 2.11, 2.13 and 2.15.

``OpOverload`` is the class of ops, which PyTorch returns from ``torch.ops``. It has no public name.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch._ops import OpOverload

__all__ = ["OpOverload", "python_dispatcher"]


def python_dispatcher() -> AbstractContextManager[Any]:
    """Makes PyTorch take its shape rules in Python, which know symbolic sizes that its C++ code refuses.

    It wraps ``torch._dispatch.python.enable_python_dispatcher``, whose import takes long.
    """
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()
