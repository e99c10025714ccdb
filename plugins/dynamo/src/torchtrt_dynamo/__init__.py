"""The way in for ``torch.compile(model, backend="torchtrt")``. PyTorch finds it through its own entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_dynamo.backend import torchtrt

__all__ = ["torchtrt"]

__getattr__, __dir__ = lazy_names(globals(), {"torchtrt_dynamo.backend": ("torchtrt",)})
