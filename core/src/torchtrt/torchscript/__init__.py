"""The TorchScript front end: scripted and traced models, on the same packs and the same runtime.

``torchtrt.torchscript.compile(model, inputs)`` compiles one. A pack adds a converter for a function schema with
``@pack.torchscript_converter(schema)``, a program with :class:`RegisterNodeConversionPatterns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt._lazy import lazy_names

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
    "Argument": "torchtrt.torchscript.arguments",
    "ConversionCtx": "torchtrt.torchscript.context",
    "RegisterNodeConversionPatterns": "torchtrt.torchscript.converters",
    "TensorContainer": "torchtrt.torchscript.arguments",
    "Unsupported": "torchtrt.torchscript.compilation",
    "Weights": "torchtrt.torchscript.context",
    "check_method_op_support": "torchtrt.torchscript.compilation",
    "compile": "torchtrt.torchscript.compilation",
    "export": "torchtrt.torchscript.compilation",
    "node_info": "torchtrt.torchscript.site",
    "open_graph": "torchtrt.torchscript.compilation",
    "unsupported_schemas": "torchtrt.torchscript.compilation",
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
