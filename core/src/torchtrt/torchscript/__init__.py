"""The TorchScript front end: scripted and traced models, on the same packs and the same runtime.

``torchtrt.torchscript.compile(model, inputs)`` compiles one. A pack adds a converter for a function schema with
``@pack.torchscript_converter(schema)``, a program with :class:`RegisterNodeConversionPatterns`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchtrt.torchscript.arguments import Argument, TensorContainer
    from torchtrt.torchscript.compilation import (
        Unsupported,
        check_method_op_support,
        compile,
        export,
        open_graph,
        unsupported_schemas,
    )
    from torchtrt.torchscript.context import ConversionCtx, Weights
    from torchtrt.torchscript.converters import RegisterNodeConversionPatterns
    from torchtrt.torchscript.site import node_info

__all__ = [
    "Argument",
    "ConversionCtx",
    "RegisterNodeConversionPatterns",
    "TensorContainer",
    "Unsupported",
    "Weights",
    "check_method_op_support",
    "compile",
    "export",
    "node_info",
    "open_graph",
    "unsupported_schemas",
]

# Imported on first use, so that packs can register TorchScript converters at no cost.
_LAZY = {
    "Argument": "arguments",
    "ConversionCtx": "context",
    "RegisterNodeConversionPatterns": "converters",
    "TensorContainer": "arguments",
    "Unsupported": "compilation",
    "Weights": "context",
    "check_method_op_support": "compilation",
    "compile": "compilation",
    "export": "compilation",
    "node_info": "site",
    "open_graph": "compilation",
    "unsupported_schemas": "compilation",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
