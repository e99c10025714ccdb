"""Reference TensorRT: the interface of TensorRT's Python package, executed by PyTorch.

It needs no GPU and no TensorRT. ``load`` returns an object that is used like the module ``tensorrt`` of one
version. Names that the version lacks are absent, its enumerations have its numbers, and it refuses what TensorRT does.

    >>> import torchtrt_reference as reference
    >>> trt = reference.load("8.6.0")
    >>> hasattr(trt.DataType, "INT64"), hasattr(reference.load("11.4.0").DataType, "INT64")
    (False, True)

Layers, from the ground up; a room imports from those above it in this list, never from one beside or below it:

1. ``rules``, ``dtypes``: what the versions do differently; the types of TensorRT, PyTorch and NumPy.
2. ``implementation``, ``semantics``: the base of the classes behind TensorRT's; facts about tensors, the base of all
   operations, and how they are evaluated.
3. ``operations``: what TensorRT's layers compute, one family to a file.
4. ``graphs``, ``network``: the built form, its plan and its execution; the definition that a caller fills.
5. ``building``, ``running``: from a definition to a plan; from a plan to results.
6. ``interface``: what the versions look like in Python, and their namespaces made of all the rest.
"""

from __future__ import annotations

from typing import Any

from torchtrt_reference.interface.module import ReferenceModule
from torchtrt_reference.rules import RULES

VERSIONS = tuple(RULES)
DEFAULT_VERSION = VERSIONS[-1]

__all__ = ["DEFAULT_VERSION", "VERSIONS", "capability_objection", "is_reference", "load"]


def capability_objection(name: str) -> str | None:
    """Returns ``""`` for the capabilities of torchtrt that the reference has beyond its version's interface."""
    return "" if name in ("BUILDS_WITHOUT_GPU", "PROCESS_GROUPS", "TORCH_DEVICES") else None


def load(version: str | None = None) -> Any:
    """Returns the reference TensorRT of ``version``: the same object on every call, from every thread.

    Args:
        version: One of ``VERSIONS``; ``DEFAULT_VERSION`` when None.

    Raises:
        ValueError: The reference has no such version.
    """
    wanted = version or DEFAULT_VERSION
    if wanted not in VERSIONS:
        message = f"The reference TensorRT has no version {wanted!r}. Select one that it has: {', '.join(VERSIONS)}."
        raise ValueError(message)
    # The interface is read and assembled on first use, so that importing this package stays cheap.
    from torchtrt_reference.interface.assembly import assembled

    return assembled(wanted)


def is_reference(module: object) -> bool:
    """Returns whether ``module`` is a reference TensorRT, as opposed to NVIDIA's."""
    return isinstance(module, ReferenceModule)
