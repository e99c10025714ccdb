"""Reference TensorRT: the interface of TensorRT's Python package, executed by PyTorch.

It needs no GPU and no TensorRT. :func:`load` returns an object that is used like the module ``tensorrt`` of one
version: what that version lacks is absent, what it renumbered has its numbers, what it refuses is refused.

    >>> import torchtrt_reference as reference
    >>> trt = reference.load("8.6.0")
    >>> hasattr(trt.DataType, "INT64"), hasattr(reference.load("11.4.0").DataType, "INT64")
    (False, True)
"""

from __future__ import annotations

from typing import Any

from torchtrt_reference.interface.module import ReferenceModule
from torchtrt_reference.rules import RULES

VERSIONS = tuple(RULES)
DEFAULT_VERSION = VERSIONS[-1]

__all__ = ["DEFAULT_VERSION", "VERSIONS", "is_reference", "load"]


def load(version: str | None = None) -> Any:
    """Returns the reference TensorRT that speaks ``version``: the same object on every call, from every thread.

    Args:
        version: One of :data:`VERSIONS`; :data:`DEFAULT_VERSION` when None.

    Raises:
        ValueError: The reference does not speak this version.
    """
    wanted = version or DEFAULT_VERSION
    if wanted not in VERSIONS:
        message = (
            f"The reference TensorRT does not speak {wanted!r}. It speaks {', '.join(VERSIONS)}."
        )
        raise ValueError(message)
    # The interface is read and assembled on first use, so that importing this package stays cheap.
    from torchtrt_reference.interface.assembly import assembled

    return assembled(wanted)


def is_reference(module: object) -> bool:
    """Returns whether ``module`` is a reference TensorRT, as opposed to NVIDIA's."""
    return isinstance(module, ReferenceModule)
