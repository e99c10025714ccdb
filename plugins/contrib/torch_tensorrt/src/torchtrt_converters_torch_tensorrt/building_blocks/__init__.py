"""``torch_tensorrt.dynamo.conversion.impl``: its functions as PyTorch functions, which are traced and converted.

Each function has the parameters of Torch-TensorRT's behind ``(ctx, target, source_ir, name)``.
"""

from torchtrt_converters_torch_tensorrt.building_blocks import (
    calls,
    elementwise,
    layers,
    reductions,
    shapes,
)
from torchtrt_converters_torch_tensorrt.building_blocks.elementwise import BINARY, UNARY
from torchtrt_converters_torch_tensorrt.building_blocks.table import BLOCKS, converter_of

__all__ = [
    "BINARY", "BLOCKS", "UNARY", "calls", "converter_of", "elementwise", "layers", "reductions", "shapes",
]  # fmt: skip
