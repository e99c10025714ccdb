"""Overrides a converter, as the upstream example of converter overloading does: by a validator and HIGH priority."""

# ruff: noqa

from typing import Dict, Sequence, Tuple, Union

import tensorrt as trt
import torch
import torch_tensorrt
from torch.fx.node import Argument, Target
from torch_tensorrt.dynamo.conversion import ConversionContext


@torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter(
    torch.ops.aten.gelu.default,
    supports_dynamic_shapes=True,
    priority=torch_tensorrt.dynamo.conversion.ConverterPriority.HIGH,
    capability_validator=lambda node, settings: (
        "approximate" in node.kwargs and node.kwargs["approximate"] == "tanh"
    ),
)
def published_gelu(
    ctx: ConversionContext,
    target: Target,
    args: Tuple[Argument, ...],
    kwargs: Dict[str, Argument],
    name: str,
) -> Union[trt.ITensor, Sequence[trt.ITensor]]:
    from torch_tensorrt.dynamo import SourceIR
    from torch_tensorrt.dynamo.conversion import impl

    count = 0

    def unique(kind):
        nonlocal count
        count += 1
        return f"{name}_{kind}_{count}"

    def mul(x, y):
        return impl.elementwise.mul(
            ctx, target, name=unique("mul"), source_ir=SourceIR.ATEN, lhs_val=x, rhs_val=y
        )

    def add(x, y):
        return impl.elementwise.add(
            ctx, target, name=unique("add"), source_ir=SourceIR.ATEN, lhs_val=x, rhs_val=y
        )

    def tanh(x):
        return impl.activation.tanh(
            ctx, target, name=unique("tanh"), source_ir=SourceIR.ATEN, input_val=x
        )

    x = args[0]
    cube = mul(mul(x, x), mul(x, 0.044715))
    inner = mul(add(x, cube), 0.7978845608)
    return mul(mul(x, 0.5), add(tanh(inner), 1.0))
