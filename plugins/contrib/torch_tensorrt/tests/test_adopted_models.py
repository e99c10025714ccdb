"""Converters that were written for Torch-TensorRT give PyTorch's values."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

import torchtrt
from plugins.contrib.torch_tensorrt.tests.adopted import Function, X, Y
from torchtrt.packs import current_packs
from torchtrt_converters_torch_tensorrt import adopt
from torchtrt_reference import VERSIONS

PROGRAM = """
import logging
from collections.abc import Sequence
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np
import tensorrt as trt
import torch
import torch_tensorrt
from tensorrt import ITensor
from torch.fx.node import Argument, Node, Target
from torch_tensorrt import ENABLED_FEATURES
from torch_tensorrt._enums import dtype
from torch_tensorrt.dynamo._settings import CompilationSettings
from torch_tensorrt.dynamo._SourceIR import SourceIR
from torch_tensorrt.dynamo.conversion import impl
from torch_tensorrt.dynamo.conversion._ConversionContext import ConversionContext
from torch_tensorrt.dynamo.conversion._ConverterRegistry import *
from torch_tensorrt.dynamo.conversion.aten_ops_converters import args_bounds_check, aten_ops_exp
from torch_tensorrt.dynamo.conversion.converter_utils import (
    cast_trt_tensor,
    enforce_tensor_types,
    get_positive_dim,
    get_trt_tensor,
    prepend_ones,
    to_numpy,
)
from torch_tensorrt.dynamo.conversion.impl.elementwise import add as plus
from torch_tensorrt.dynamo.conversion.impl.elementwise.ops import mul
from torch_tensorrt.dynamo.conversion.impl.shape import shape as get_shape
from torch_tensorrt.fx.converters.converter_utils import set_layer_name
from torch_tensorrt.fx.types import TRTTensor

logger = logging.getLogger(__name__)
LOWERED = SourceIR.TORCHTRT_LOWERED


def known_share(node: Node, settings: Optional[CompilationSettings] = None) -> bool:
    return isinstance(args_bounds_check(node.args, 2, 0.5), float) and not settings.use_fp32_acc


@torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter(
    torch.ops.adopted.blend.default,
    enabled=True,
    capability_validator=known_share,
    priority=torch_tensorrt.dynamo.conversion.ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
@enforce_tensor_types({0: (TRTTensor,), 1: (TRTTensor,)})
def convert_blend(
    ctx: torch_tensorrt.dynamo.conversion.ConversionContext,
    target: Target,
    args: Tuple[Argument, ...],
    kwargs: Dict[str, Argument],
    name: str,
) -> Union[trt.ITensor, Sequence[trt.ITensor]]:
    share = args_bounds_check(args, 2, replacement=0.5)
    first = mul(ctx, target, SourceIR.ATEN, f"{name}_first", args[0], share)
    rest = get_trt_tensor(ctx, np.array([1 - share]), f"{name}_share", dtype=args[1].dtype)
    rest = prepend_ones(ctx, rest, f"{name}_ones", len(args[1].shape) - 1)
    layer = ctx.net.add_elementwise(args[1], rest, trt.ElementWiseOperation.PROD)
    set_layer_name(layer, target, f"{name}_second", SourceIR.ATEN)
    return plus(ctx, target, SourceIR.ATEN, f"{name}_sum", first, layer.get_output(0))


@dynamo_tensorrt_converter(torch.ops.adopted.norm_rows.default, supports_dynamic_shapes=True)
def convert_norm_rows(ctx: ConversionContext, target: Target, args: Any, kwargs: Any, name: str) -> TRTTensor:
    x, weight, eps = args
    assert isinstance(x, ITensor) and isinstance(x, TRTTensor) and isinstance(weight, torch.Tensor)
    source = SourceIR.ATEN
    square = impl.elementwise.pow(ctx, target, source, f"{name}_square", x, 2)
    last = (get_positive_dim(-1, len(x.shape)),)
    mean = impl.reduce.mean(ctx, target, source, f"{name}_mean", square, dim=last, keepdim=True)
    shifted = impl.elementwise.add(ctx, target, source, f"{name}_eps", mean, eps)
    root = impl.unary.sqrt(ctx, target, source, f"{name}_root", shifted)
    normal = impl.elementwise.div(ctx, target, source, f"{name}_normal", x, root)
    scale = get_trt_tensor(ctx, to_numpy(weight), f"{name}_weight", dtype._from(x.dtype).to(np.dtype), min_rank=2)
    return impl.elementwise.mul(ctx, target, source, f"{name}_scaled", normal, scale)


@dynamo_tensorrt_converter(torch.ops.adopted.positions.default, supports_dynamic_shapes=True)
def convert_positions(ctx: ConversionContext, target: Target, args: Any, kwargs: Any, name: str) -> TRTTensor:
    (x,) = args
    source, size = SourceIR.ATEN, args[0].shape[0]
    if size < 0:
        size = get_shape(ctx, target, source, f"{name}_size", x, 0)
    places = impl.arange.arange(ctx, target, source, f"{name}_places", start=0, end=size, step=1)
    rows = impl.shuffle.reshape(ctx, target, source, f"{name}_rows", places, [size, 1])
    columns = impl.shuffle.reshape(ctx, target, source, f"{name}_columns", places, [1, size])
    mask = impl.elementwise.ge(ctx, target, source, f"{name}_mask", rows, columns)
    mask = cast_trt_tensor(ctx, mask, trt.float32, f"{name}_cast", target, source)
    return impl.matmul.matrix_multiply(ctx, target, source, f"{name}_out", mask, x)


@dynamo_tensorrt_converter(torch.ops.adopted.pick.default, supports_dynamic_shapes=True)
def convert_pick(ctx, target, args, kwargs, name):
    layer = ctx.net.add_topk(args[0], trt.TopKOperation.MAX, 1, 1 << 1)
    return impl.squeeze.squeeze(ctx, target, SourceIR.ATEN, name, layer.get_output(1), 1)


@dynamo_tensorrt_converter(torch.ops.adopted.lazy.default, supports_dynamic_shapes=True)
def convert_lazily(ctx, target, args, kwargs, name):
    import torch_tensorrt.dynamo.conversion.impl as blocks
    from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor as constant

    one = constant(ctx, 1, name, args[0].dtype)
    return blocks.elementwise.add(ctx, target, None, name, args[0], one)


@dynamo_tensorrt_converter(torch.ops.adopted.legacy.default, supports_dynamic_shapes=True)
def convert_legacy(network, target, args, kwargs, name):
    return network.add_unary(args[0], trt.UnaryOperation.EXP).get_output(0)
"""

MODELS = {
    "blend": (lambda self, x, y: torch.ops.adopted.blend(x, y, 0.25), (X, Y)),
    "blend-half": (lambda self, x, y: torch.ops.adopted.blend(x, y), (X.half(), Y.half())),
    "norm_rows": (lambda self, x: torch.ops.adopted.norm_rows(x, self.weight, 1e-6), (X,)),
    "positions": (lambda self, x: torch.ops.adopted.positions(x), (X,)),
    "pick": (lambda self, x: torch.ops.adopted.pick(x), (X,)),
    "lazy": (lambda self, x: torch.ops.adopted.lazy(x), (X,)),
    "legacy": (lambda self, x: torch.ops.adopted.legacy(x), (X,)),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A module as people publish them, adopted."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "their_converters.py").write_text(PROGRAM)
    sys.path.insert(0, str(folder))
    yield adopt("their_converters")
    sys.path.remove(str(folder))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varying"])
@pytest.mark.parametrize("name", MODELS)
def test_their_converters_give_pytorchs_values(theirs, name, varies, version):
    """With fixed sizes and varying ones, on every TensorRT, whichever was in use when they were adopted."""
    function, tensors = MODELS[name]
    model, size = Function(function).eval(), torch.export.Dim("size", min=2, max=8)
    shapes = (tuple({0: size} for _ in tensors),) if varies else None
    program = torch.export.export(model, tensors, dynamic_shapes=shapes)
    # Other tests of this process may have adopted converters of the same op.
    preferred = {"adopted::legacy": theirs.name} if name == "legacy" else {}
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(
            program, require_full_compilation=True, converter_preferences=preferred
        )

    torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-3, atol=1e-3)
    if varies:
        tensors = [torch.cat([tensor, tensor[:3]]) for tensor in tensors]
        torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-3, atol=1e-3)
    (row,) = compiled.report.converted
    assert (row.pack.split()[0], row.converter.partition(":")[0]) == (
        "their_converters",
        "their_converters",
    )


def test_nobody_else_sees_a_torch_tensorrt(theirs):
    """A check whether it is installed gets the right result, also while a module is being adopted."""
    assert "torch_tensorrt" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch_tensorrt")


def test_adopting_twice_changes_nothing(theirs):
    """The second call gives the same pack with the same converters."""
    count = len(theirs.converters)

    assert theirs is adopt("their_converters")
    assert count == len(theirs.converters)


def test_the_pack_is_listed_by_its_own_name(theirs):
    """In pack order, with where it came from."""
    names = [loaded.info.name for loaded in current_packs().loaded]

    assert "their_converters" in names
    assert names.index("their_converters") > names.index("aten_core")
    assert "local" == names[-1]
