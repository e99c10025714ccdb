"""Every building block of Torch-TensorRT's ``impl`` gives what PyTorch's function of that meaning gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchtrt
from torchtrt.conversion import ConversionContext
from torchtrt.packs import ConverterPriority, use_packs
from torchtrt.registry import dynamo_tensorrt_converter
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.shims import create_network
from torchtrt_converters_torch_tensorrt.building_blocks import BINARY, BLOCKS, UNARY
from torchtrt_converters_torch_tensorrt.context import AdoptedContext
from torchtrt_reference import VERSIONS

library = torch.library.Library("building_blocks", "DEF")
library.define("run(Tensor[] tensors, str case) -> Tensor")


@dataclass(frozen=True)
class Case:
    """A call of a block: ``arguments`` makes its arguments of the tensors, ``eager`` is what it should give."""

    path: str
    arguments: Any
    eager: Any
    tensors: tuple[torch.Tensor, ...]


CASES: dict[str, Case] = {}


def case(path, arguments, eager, *tensors, label=""):
    """Adds a case; the first size of each tensor of two and more dimensions varies."""
    CASES[f"{path}{label}"] = Case(path, arguments, eager, tensors)


torch.manual_seed(0)
X = torch.randn(4, 6) * 2
Y = torch.randn(4, 6)
POSITIVE = torch.rand(4, 6) + 0.1
SMALL = torch.rand(4, 6) * 1.8 - 0.9
NUMBERS = torch.randint(1, 9, (4, 6))
TRUTH = torch.randint(0, 2, (4, 6)).bool()
IMAGE = torch.randn(4, 4, 8, 10)


def one(x, *rest, **named):
    """Returns arguments for a block of one tensor and constants."""
    return (x, *rest), named


SPECIAL = {"bitwise_not": NUMBERS, "logical_not": TRUTH}
SPECIAL |= dict.fromkeys(("acos", "asin", "atanh"), SMALL)
SPECIAL |= dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "recip"), POSITIVE)
SPECIAL["acosh"] = POSITIVE + 1
for name, function in UNARY.items():
    case(f"unary.{name}", one, function, SPECIAL.get(name, X))
for name, function in BINARY.items():
    tensors = (TRUTH, ~TRUTH) if name.startswith(("logical", "bitwise")) else (POSITIVE, Y)
    case(f"elementwise.{name}", one, function, *tensors)
case("elementwise.add", lambda x: one(1.5, x), lambda x: 1.5 + x, X, label="-number")
case("elementwise.max", lambda x: one(x, 0.5), lambda x: x.clamp(min=0.5), X, label="-number")
case("elementwise.div", lambda x: one(x, 2), lambda x: x / 2, NUMBERS, label="-integers")
case(
    "elementwise.sub",
    lambda x: one(np.ones((1, 6), np.float32), x),
    lambda x: 1 - x,
    X,
    label="-array",
)
for name in ("fmod", "remainder", "atan2"):
    case(f"elementwise.{name}", one, getattr(torch, name), X, POSITIVE)
case("elementwise.trunc_div", one, lambda x, y: torch.div(x, y, rounding_mode="trunc"), X, POSITIVE)
case("elementwise.rsqrt", one, torch.rsqrt, POSITIVE)
case("elementwise.clamp", lambda x: one(x, -1, 0.5), lambda x: x.clamp(-1, 0.5), X)
for operation, expected in {"SUM": torch.add, "LESS": torch.lt, "POW": torch.pow}.items():
    case(
        "elementwise.base.convert_binary_elementwise",
        lambda x, y, operation=operation: one(
            getattr(torchtrt.trt.ElementWiseOperation, operation), x, y
        ),
        expected,
        POSITIVE,
        Y,
        label=f"-{operation}",
    )
case(
    "elementwise.base.convert_binary_elementwise",
    lambda x, y: one(torchtrt.trt.ElementWiseOperation.DIV, x, y),
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    NUMBERS,
    NUMBERS + 1,
    label="-DIV",
)
case("unary.base.convert_unary", lambda x: one(torchtrt.trt.UnaryOperation.EXP, x), torch.exp, X)
case("unary.isnan", one, torch.isnan, torch.where(X > 0, torch.nan, X))
case("unary.sym_not", one, torch.logical_not, TRUTH)
case("unary.scalar_tensor", lambda x: one(2.5, np.float32), lambda x: torch.tensor(2.5), X)

for name, function in {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "hardtanh": F.hardtanh,
    "gelu": F.gelu,
}.items():
    case(f"activation.{name}", one, function, X)
case(
    "activation.gelu",
    lambda x: one(x, "tanh"),
    lambda x: F.gelu(x, approximate="tanh"),
    X,
    label="-tanh",
)
case(
    "activation.hard_sigmoid", lambda x: one(x, 0.2, 0.5), lambda x: (0.2 * x + 0.5).clamp(0, 1), X
)
case("activation.scaled_tanh", lambda x: one(x, 2.0, 0.5), lambda x: 2 * torch.tanh(0.5 * x), X)
case("activation.thresholded_relu", lambda x: one(x, 0.5), lambda x: torch.where(x > 0.5, x, 0), X)
case(
    "activation.base.convert_activation",
    lambda x: one(torchtrt.trt.ActivationType.LEAKY_RELU, x, 0.3),
    lambda x: F.leaky_relu(x, 0.3),
    X,
)
case(
    "prelu.prelu",
    lambda x: one(x, torch.tensor([0.1])),
    lambda x: F.prelu(x, torch.tensor([0.1])),
    X,
)

case(
    "arange.arange", lambda x: one(2, 11, 3), lambda x: torch.arange(2, 11, 3, dtype=torch.int32), X
)
case("full.full", lambda x: one([2, 3], 1.5, torch.float32), lambda x: torch.full((2, 3), 1.5), X)
case("cast.to_copy", lambda x: one(x, torch.int32), lambda x: x.int(), X)
case(
    "shape.shape", lambda x: one(x, 0), lambda x: torch.full((1,), x.shape[0], dtype=torch.int32), X
)
case("shape.numel", one, lambda x: torch.full((1,), x.numel(), dtype=torch.int32), X)
case(
    "shape.get_shape_with_dynamic_shape",
    lambda x: (((-1, 3), x), {}),
    lambda x: torch.cat([torch.full((1,), size, dtype=torch.int32) for size in (x.shape[0], 3)]),
    X,
)
case("shuffle.reshape", lambda x: one(x, (-1, 2)), lambda x: x.reshape(-1, 2), X)
case("shuffle.pixel_shuffle", lambda x: one(x, 2), lambda x: F.pixel_shuffle(x, 2), IMAGE)
case("shuffle.pixel_unshuffle", lambda x: one(x, 2), lambda x: F.pixel_unshuffle(x, 2), IMAGE)
case("permutation.permute", lambda x: one(x, (0, 2, 3, 1)), lambda x: x.permute(0, 2, 3, 1), IMAGE)
case("permutation.roll", lambda x: one(x, [1, 2], [0, 1]), lambda x: x.roll((1, 2), (0, 1)), X)
case("squeeze.squeeze", lambda x: one(x, 1), lambda x: x.squeeze(1), X[:, :1])
case("unsqueeze.unsqueeze", lambda x: one(x, 1), lambda x: x.unsqueeze(1), X)
case(
    "unsqueeze.broadcast_in_dim",
    lambda x: one(x, (3, 6), (1,)),
    lambda x: x.expand(3, 6).clone(),
    torch.arange(6.0),
)
case("slice.slice_op", lambda x: one(x, 1, 1, 5, 2), lambda x: x[:, 1:5:2], X)
case("slice.slice_op", lambda x: one(x, 0, 0, -1, 1), lambda x: x[:-1], X, label="-last")
case("slice.base.slice", lambda x: one(x, (0, 1), (2, 2), (1, 2)), lambda x: x[0:2, 1:4:2], X)
case("slice.expand", lambda x: one(x, (3, 6)), lambda x: x.expand(3, 6).clone(), torch.arange(6.0))
case("slice.cumsum", lambda x: one(x, 1), lambda x: x.cumsum(1), X)
case("slice.tile", lambda x: one(x, (2, 3)), lambda x: x.tile(2, 3), X)
case("slice.flip", lambda x: one(x, [0, 1]), lambda x: x.flip(0, 1), X)
case("slice.diagonal", lambda x: one(x, 1, 2, 3), lambda x: x.diagonal(1, 2, 3).clone(), IMAGE)
case(
    "slice.as_strided",
    lambda x: one(x, (2, 3), (3, 1), 1),
    lambda x: x.as_strided((2, 3), (3, 1), 1).clone(),
    torch.arange(9.0),
)
case(
    "slice_scatter.slice_scatter",
    lambda x, y: one(x, y, 1, 1, 4),
    lambda x, y: x.slice_scatter(y, 1, 1, 4),
    X,
    Y[:, :3],
)
case("split.split", lambda x: one(x, [2, 4], 1), lambda x: x.split([2, 4], 1), X)
case("cat.cat", lambda x, y: one([x, y], 1), lambda x, y: torch.cat([x, y], 1), X, Y)

case("condition.where", lambda x, y, c: one(x, y, c), lambda x, y, c: x.where(c, y), X, Y, TRUTH)
case("condition.select", lambda x, y, c: one(x, y, c), lambda x, y, c: x.where(c, y), X, Y, TRUTH)
case("select.select", lambda x: one(x, 1, -2), lambda x: x.select(1, -2).clone(), X)


def ROWS():
    """Places, made anew: what an op computes may hold no tensor of its own."""
    return torch.tensor([3, 0, 1])


def WAVES(*shape):
    """Weights, made anew."""
    return torch.sin(torch.arange(float(torch.Size(shape).numel()))).reshape(shape)


def CHANNELS():
    """Positive weights of channels."""
    return WAVES(4) + 1.5


case("select.index", lambda x: one(x, [None, ROWS()]), lambda x: x[:, ROWS()], X)
case("select.index_select", lambda x: one(x, 1, ROWS()), lambda x: x.index_select(1, ROWS()), X)
case("select.gather", lambda x, i: one(x, 1, i), lambda x, i: x.gather(1, i), X, NUMBERS % 6)
case(
    "select.scatter",
    lambda x, y: one(x, 1, torch.tensor([[1, 3]]), 5.0),
    lambda x, y: x.scatter(1, torch.tensor([[1, 3]]), 5.0),
    X[:1].clone(),
    Y,
)
case(
    "select.index_put_converter",
    lambda x: one(x, [None, ROWS()], 7.0),
    lambda x: x.index_put([torch.arange(x.shape[0])[:, None], ROWS()[None]], torch.tensor(7.0)),
    X,
)
case("embedding.embedding", lambda w: one(ROWS(), w), lambda w: F.embedding(ROWS(), w), X)
GRID = torch.rand(4, 5, 5, 2) * 2 - 1
case(
    "grid.grid",
    lambda x, g: one(x, g, 0, 0, False),
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    IMAGE,
    GRID,
)

for name, function in {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax}.items():
    case(
        f"reduce.{name}",
        lambda x: one(x, [1], True),
        lambda x, function=function: function(x, 1, True),
        X,
    )
case("reduce.amin", lambda x: one(x, [1], False), lambda x: x.amin(1), X)
case(
    "reduce.sum",
    lambda x: one(x, 1, False),
    lambda x: x.sum(1, dtype=torch.int64),
    NUMBERS,
    label="-integers",
)
case("reduce.amax", one, lambda x: x.amax(), X, label="-all")
case("reduce.prod", lambda x: one(x, 1, False), lambda x: x.prod(1), X)
case("reduce.max", lambda x: one(x, 1, False, True), lambda x: x.max(1), X)
case("reduce.min", lambda x: one(x, 1, False, False), lambda x: x.amin(1), X)
case("reduce.any", lambda x: one(x, 1, False), lambda x: x.any(1), TRUTH)
case("topk.argmax", lambda x: one(x, 1), lambda x: x.argmax(1), X)
case("topk.argmin", lambda x: one(x, 1, True), lambda x: x.argmin(1, True), X)
case("topk.topk", lambda x: one(x, 3, 1, True, True), lambda x: x.topk(3, 1), X)
case("topk.sort", lambda x: one(x, 1, True), lambda x: x.sort(1, True), X)

case(
    "matmul.matrix_multiply",
    lambda x, y: one(x, y, other_matrix_op=torchtrt.trt.MatrixOperation.TRANSPOSE),
    lambda x, y: x @ y.mT,
    X,
    Y,
)
case(
    "linear.linear",
    lambda x: one(x, WAVES(5, 6), WAVES(5)),
    lambda x: F.linear(x, WAVES(5, 6), WAVES(5)),
    X,
)
case(
    "addmm.addmm",
    lambda x: one(WAVES(5), x, WAVES(5, 6).T, beta=2.0),
    lambda x: 2 * WAVES(5) + x @ WAVES(5, 6).T,
    X,
)
case(
    "linalg.cross",
    lambda x, y: one(x, y, 1),
    lambda x, y: torch.linalg.cross(x, y, dim=1),
    X[:, :3],
    Y[:, :3],
)
case(
    "conv.convNd",
    lambda x: one(False, x, WAVES(6, 2, 3, 3), None, 1, (1, 1), 1, 2),
    lambda x: F.conv2d(x, WAVES(6, 2, 3, 3), padding=1, groups=2),
    IMAGE,
)
case(
    "conv.convNd",
    lambda x: one(
        False, x, WAVES(6, 2, 3, 3), None, 1, None, 1, 2, pre_padding=(1, 0), post_padding=(0, 2)
    ),
    lambda x: F.conv2d(F.pad(x, (0, 2, 1, 0)), WAVES(6, 2, 3, 3), groups=2),
    IMAGE,
    label="-padding",
)
case(
    "deconv.deconvNd",
    lambda x: one(False, x, WAVES(4, 3, 2, 2), None, 2, 0, 1, 1),
    lambda x: F.conv_transpose2d(x, WAVES(4, 3, 2, 2), stride=2),
    IMAGE,
)
case("pool.max_poolNd", lambda x: one(x, (2, 2), (2, 2)), lambda x: F.max_pool2d(x, 2, 2), IMAGE)
case(
    "pool.avg_poolNd",
    lambda x: one(x, (2, 2), [], 1),
    lambda x: F.avg_pool2d(x, 2, padding=1),
    IMAGE,
)
case(
    "pool.adaptive_avg_poolNd",
    lambda x: one(x, (2, 5)),
    lambda x: F.adaptive_avg_pool2d(x, (2, 5)),
    IMAGE,
)
case(
    "pool.adaptive_avg_pool1d",
    lambda x: one(x, 2),
    lambda x: F.adaptive_avg_pool1d(x, 2),
    IMAGE[:, :, 0],
)
case("pad.constant_padNd", lambda x: one(x, (1, 2), 3.0), lambda x: F.pad(x, (1, 2), value=3.0), X)
case(
    "pad.reflection_padNd",
    lambda x: one(x, (1, 2, 1, 0)),
    lambda x: F.pad(x, (1, 2, 1, 0), "reflect"),
    IMAGE,
)
case(
    "pad.replication_padNd",
    lambda x: one(x, (1, 2, 1, 0)),
    lambda x: F.pad(x, (1, 2, 1, 0), "replicate"),
    IMAGE,
)
case(
    "pad.circular_padNd",
    lambda x: one(x, (1, 2, 1, 0)),
    lambda x: F.pad(x, (1, 2, 1, 0), "circular"),
    IMAGE,
)
case("pad.pad", lambda x: one(x, (1, 2), "constant", 1.0), lambda x: F.pad(x, (1, 2), value=1.0), X)
case(
    "upsample.upsample",
    lambda x: one(x, (16, 20), None, "bilinear", False),
    lambda x: F.interpolate(x, (16, 20), mode="bilinear", align_corners=False),
    IMAGE,
)
case(
    "upsample.upsample",
    lambda x: one(x, (16, 20), None, "nearest", None),
    lambda x: F.interpolate(x, (16, 20)),
    IMAGE,
    label="-nearest",
)

case("normalization.softmax", lambda x: one(x, -1, False), lambda x: x.softmax(-1), X)
case(
    "normalization.batch_norm",
    lambda x: one(x, 0.1, 1e-5, False, CHANNELS(), CHANNELS(), CHANNELS(), CHANNELS()),
    lambda x: F.batch_norm(x, CHANNELS(), CHANNELS(), CHANNELS(), CHANNELS()),
    IMAGE,
)
case(
    "normalization.native_layer_norm",
    lambda x: one(x, [6], torch.ones(6), None, 1e-5),
    lambda x: (F.layer_norm(x, [6]),),
    X,
)
case(
    "normalization.native_group_norm",
    lambda x: one(x, CHANNELS(), None, 4, 4, 80, 2, 1e-5),
    lambda x: (F.group_norm(x, 2, CHANNELS()),),
    IMAGE,
    label="-fixed",
)
case(
    "normalization.cdist_forward", lambda x, y: one(x, y, 2.0), lambda x, y: torch.cdist(x, y), X, Y
)
case("normalization.pdist", one, F.pdist, X, label="-fixed")
case(
    "attention.scaled_dot_product_attention",
    lambda q, k, v: one(q, k, v, is_causal=True),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    IMAGE,
    IMAGE + 1,
    IMAGE - 1,
)
case("attention.tril", lambda x: one(3, 4), lambda x: torch.ones(3, 4).tril().bool(), X)

WITHOUT_CASE = {"unary.nonzero": "its result's size depends on data: see test_adoption.py"}


def first(result):
    """Returns the first of several results."""
    return result[0] if isinstance(result, (list, tuple)) else result


@torch.library.impl(library, "run", "CompositeExplicitAutograd")
def run(tensors, case):
    """What the block should give."""
    return first(CASES[case].eager(*tensors)).clone()


torch.library.register_fake("building_blocks::run", run)


def convert(ctx, target, args, kwargs, name):
    """Adds the block."""
    tensors, label = args
    path = CASES[label].path
    module, _, function = path.rpartition(".")
    positional, named = CASES[label].arguments(*tensors)
    view = AdoptedContext.over(ctx)
    return first(BLOCKS[module][function](view, target, None, name, *positional, **named))


@pytest.fixture(autouse=True, scope="module")
def registered():
    """The converter, for the tests of this file: other tests ask who converts what."""
    register = dynamo_tensorrt_converter(
        torch.ops.building_blocks.run.default,
        priority=ConverterPriority.HIGH,
        supports_dynamic_shapes=True,
    )
    with use_packs():
        register(convert)
        yield


class Model(nn.Module):
    """A call of a block."""

    def __init__(self, label):
        super().__init__()
        self.label = label

    def forward(self, *tensors):
        """Runs the block on what no block before has named."""
        return torch.ops.building_blocks.run([tensor.clone() for tensor in tensors], self.label)


def exported(label):
    """Returns the program of a case, whose first sizes vary together where they can."""
    model, tensors = Model(label).eval(), CASES[label].tensors
    size = torch.export.Dim("size", min=3, max=8)
    vary = "-fixed" not in label and all(t.dim() > 1 and t.shape[0] == 4 for t in tensors)
    shapes = (tuple({0: size} for _ in tensors),) if vary else None
    return torch.export.export(model, tensors, dynamic_shapes=shapes), vary


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("label", CASES)
def test_a_block_gives_pytorchs_values(label, version):
    """With sizes that vary, on every TensorRT."""
    model, tensors = Model(label).eval(), CASES[label].tensors
    program, vary = exported(label)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-4, atol=1e-5)
    if vary:
        tensors = [torch.cat([tensor, tensor[:3]]) for tensor in tensors]
        torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-4, atol=1e-5)


def test_every_block_has_a_case():
    """One that was not tried may do anything."""
    all_blocks = {f"{module}.{name}" for module, blocks in BLOCKS.items() for name in blocks}

    assert all_blocks == {case.path for case in CASES.values()} | set(WITHOUT_CASE)


def test_an_adopted_converter_may_record_weights():
    """As Torch-TensorRT's do for refitting; every view of one conversion has the same record."""
    ctx, weight = ConversionContext(create_network(trt.Builder(logger()))), torch.rand(2)

    AdoptedContext.over(ctx).record_weight("scale", weight)

    assert {"scale": weight} == AdoptedContext.over(ctx).weight_refit_map
