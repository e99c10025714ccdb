"""The test kit for authors of converter packs; ``torchtrt.testing`` is this package.

A test of a pack subclasses ``PackConformance`` and has a line with ``op_case`` for each op.

pytest imports this package in every environment that has it, for one mark. Nothing here imports PyTorch before its use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchtrt_testing.cases import OpCase, decomposition_case, op_case
    from torchtrt_testing.checking import assert_close, check_case, run_compiled
    from torchtrt_testing.conformance import PackConformance
    from torchtrt_testing.pack_cases import cases_of, first_party_cases
    from torchtrt_testing.tensors import DIMENSIONS, TensorSpec
    from torchtrt_testing.verification.running import verify
    from torchtrt_testing.versions import tensorrts

__all__ = [
    "DIMENSIONS",
    "OpCase",
    "PackConformance",
    "TensorSpec",
    "assert_close",
    "cases_of",
    "check_case",
    "decomposition_case",
    "first_party_cases",
    "op_case",
    "run_compiled",
    "tensorrts",
    "verify",
]

_MODULES = {
    "DIMENSIONS": "tensors",
    "OpCase": "cases",
    "PackConformance": "conformance",
    "TensorSpec": "tensors",
    "assert_close": "checking",
    "cases_of": "pack_cases",
    "check_case": "checking",
    "decomposition_case": "cases",
    "first_party_cases": "pack_cases",
    "op_case": "cases",
    "run_compiled": "checking",
    "tensorrts": "versions",
    "verify": "verification.running",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
