"""From a PyTorch model to a compiled one: exporting, lowering, partitioning, building."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_compiler.api import compile, explain, export
    from torchtrt_compiler.inputs import Input, Number
    from torchtrt_compiler.measuring.profiling import CallProfile, ProfileEntry, profile
    from torchtrt_compiler.record import record_compilation
    from torchtrt_compiler.refit import refit_module_weights

__all__ = [
    "CallProfile",
    "Input",
    "Number",
    "ProfileEntry",
    "compile",
    "explain",
    "export",
    "profile",
    "record_compilation",
    "refit_module_weights",
]

_LAZY = {
    "torchtrt_compiler.api": ("compile", "explain", "export"),
    "torchtrt_compiler.inputs": ("Input", "Number"),
    "torchtrt_compiler.measuring.profiling": ("CallProfile", "ProfileEntry", "profile"),
    "torchtrt_compiler.record": ("record_compilation",),
    "torchtrt_compiler.refit": ("refit_module_weights",),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
