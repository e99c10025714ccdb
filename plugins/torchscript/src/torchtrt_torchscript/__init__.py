"""The TorchScript front end: scripted and traced models, on the same packs and the same runtime.

``torchtrt_torchscript.compile(model, inputs)`` compiles one. A pack adds a converter for a function schema with
``@torchscript_converter(pack, schema)``, a program with ``RegisterNodeConversionPatterns``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_torchscript.compilation import (
        Unsupported,
        check_method_op_support,
        compile,
        export,
        open_graph,
        unsupported_schemas,
    )
    from torchtrt_torchscript.conversion_ctx import ConversionCtx, Weights
    from torchtrt_torchscript.node_arguments import Argument, TensorContainer
    from torchtrt_torchscript.schema_converters import (
        RegisterNodeConversionPatterns,
        torchscript_converter,
    )
    from torchtrt_torchscript.source_location import node_info

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
    "torchscript_converter",
    "unsupported_schemas",
]

# Imported on first use, so that packs can register TorchScript converters at no cost.
_LAZY = {
    "torchtrt_torchscript.compilation": (
        "Unsupported",
        "check_method_op_support",
        "compile",
        "export",
        "open_graph",
        "unsupported_schemas",
    ),
    "torchtrt_torchscript.conversion_ctx": ("ConversionCtx", "Weights"),
    "torchtrt_torchscript.node_arguments": ("Argument", "TensorContainer"),
    "torchtrt_torchscript.schema_converters": (
        "RegisterNodeConversionPatterns",
        "torchscript_converter",
    ),
    "torchtrt_torchscript.source_location": ("node_info",),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
