"""The operator that runs an engine in a saved model. It is registered here so that ``torch.export.load`` finds it.

Its implementation is in ``torchtrt-runtime``, which is imported when the operator first runs.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.lazy import import_part

_NAME = "torchtrt::execute_engine"
_IMPLEMENTATION = "torchtrt_runtime.serialization.engine_operator"


def _implementation() -> Any:
    return import_part(_IMPLEMENTATION, f"The operator {_NAME}")


def _execute(*args: Any) -> Any:
    return _implementation().execute_engine(*args)


def _outputs(*args: Any) -> Any:
    return _implementation().engine_outputs(*args)


def _backward(*_: Any) -> Any:
    return _implementation().no_gradients()


_LIBRARY: Any = torch.library.Library("torchtrt", "FRAGMENT")
_LIBRARY.define(
    "execute_engine(Tensor[] inputs, Tensor plan, str description) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)
_LIBRARY.impl("execute_engine", _execute, "CompositeExplicitAutograd")
torch.library.register_fake(_NAME, _outputs, lib=_LIBRARY)
torch.library.register_autograd(_NAME, _backward, lib=_LIBRARY)
