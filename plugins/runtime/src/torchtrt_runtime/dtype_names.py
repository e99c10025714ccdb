"""Dtypes that come as text."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.errors import UnreadableFileError


def dtype_from_json(name: Any) -> torch.dtype:
    """Returns ``torch.float32`` for ``"float32"``.

    Raises:
        UnreadableFileError: PyTorch has no such dtype.
    """
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise UnreadableFileError(f"This PyTorch has no dtype {name!r}.")
    return dtype
