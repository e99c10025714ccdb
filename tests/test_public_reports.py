"""Reductions of public reports about other converters of PyTorch models, as ``docs/public-reports.md`` lists them.

Sizes that differ between the calls of a report are dynamic, from the smallest to the largest.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import torchtrt

HALF, I32 = torch.float16, torch.int32
DATA_SIZE = "cannot be computed in TensorRT"
WRITES = "It writes to a buffer or an input"


class Model(nn.Module):
    """A function of itself, its inputs and its parts."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if type(part) is Tensor:
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        """Returns what the function returns."""
        return self.function(self, *inputs)


@dataclass(frozen=True)
class Report:
    """A reduction of a report.

    Attributes:
        model: Makes the model.
        calls: Makes the inputs of calls.
        stays: Ops that stay in PyTorch, and a part of the reason.
        checks_sizes: Whether its code refuses sizes, so that PyTorch takes no named dimension.
        dtype: The dtype of the weights.
        tolerance: The largest difference from eager PyTorch.
    """

    model: Callable[[], nn.Module]
    calls: Callable[[], Sequence[tuple[Any, ...]]]
    stays: Mapping[str, str] = field(default_factory=dict)
    checks_sizes: bool = False
    dtype: torch.dtype = torch.float32
    tolerance: float = 1e-4


REPORTS: dict[str, Report] = {}


def report(
    name: str, parts: Callable[[], dict[str, Any]], *sizes: tuple[int, ...], **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator for the function of a report's model, whose inputs are made for each tuple of sizes."""
    make_inputs = options.pop("inputs")

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        REPORTS[name] = Report(
            lambda: Model(function, **parts()),
            lambda: [make_inputs(*size) for size in sizes],
            **options,
        )
        return function

    return add


def images(channels: int) -> Callable[..., tuple[Tensor]]:
    """Returns what makes images of a batch, a height and a width."""
    return lambda batch, height, width: (torch.randn(batch, channels, height, width),)


def matrix(*width: int) -> Callable[[int], tuple[Tensor]]:
    """Returns what makes a tensor of some rows."""
    return lambda rows: (torch.randn(rows, *width),)


@report("TensorRT-1788", dict, (5,), (1,), (8,), inputs=matrix(5, 10))
def view_of_a_batch(_: Any, x: Tensor) -> Tensor:
    return x.view(-1, 25)


@report("TensorRT-2617", dict, (4, 8, 6), (2, 5, 9), (7, 3, 4), inputs=images(3))
def views_of_height_and_width(_: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    count, channels, height, width = x.shape
    whole = x.view(1, count, channels, height, width)
    return whole.flatten(3).mean(-1), x.view(1, count, channels * height, width).transpose(1, 3)


@report(
    "TensorRT-4621", dict, (3,), (1,), (5,),
    inputs=lambda count: (torch.randn(4, 9), torch.randperm(9)[:count]),
)  # fmt: skip
def columns_written_by_indices(_: Any, x: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.arange(4)[:, None]
    added = x.index_put((rows, columns), columns.float(), accumulate=True)
    return torch.ops.aten.index_put.default(x, [None, columns], columns.float()), added


@report(
    "TensorRT-4609", dict, (2,), (1,), (4,),
    inputs=lambda batch: (torch.randint(9, (batch, 5)), torch.randn(batch, 2, 7)),
)  # fmt: skip
def indices_written_to_integers(_: Any, ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    ids, half = ids.clone(), torch.zeros(ids.shape[0], 5, dtype=HALF)
    ids[:, torch.tensor([0, 3])] = scores.argmax(-1)
    half[:, 1] = scores.amax((1, 2)).half()
    return ids, half


@report(
    "TensorRT-4161", lambda: {"cache": torch.zeros(1, 4, 16, 8), "linear": nn.Linear(8, 8)},
    (3,), (15,), inputs=lambda step: (torch.randn(1, 4, 8).half(), torch.tensor([step])),
    stays={"aten.index_copy_.default": WRITES}, dtype=HALF, tolerance=5e-3,
)  # fmt: skip
def step_over_a_cache(self: Any, x: Tensor, position: Tensor) -> Any:
    self.cache.index_copy_(2, position, self.linear(x).unsqueeze(2))
    return self.cache.sum(2)


@report(
    "TensorRT-3777", dict, (2, 7), (1, 4), (5, 9),
    inputs=lambda batch, length: (torch.randn(batch, length, 6).half(), torch.arange(batch) + 1),
)  # fmt: skip
def masked_write(_: Any, x: Tensor, lengths: Tensor) -> Tensor:
    kept = torch.arange(x.shape[1])[None] < lengths[:, None]
    x = x.clone()
    x[(~kept).unsqueeze(-1).expand_as(x)] = 0.0
    return x


def signed(_: int) -> tuple[Tensor, Tensor]:
    """Returns integers with both signs, the largest ones included, and divisors."""
    numbers = torch.tensor([7, -7, -8, 5, 2**31 - 1, 1 - 2**31], dtype=I32)
    return numbers, torch.tensor([2, 2, -3, -5, 3, -7], dtype=I32)


@report("TensorRT-1442", dict, (0,), inputs=signed)
def integer_division(_: Any, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    roundings = [torch.div(a, b, rounding_mode=mode) for mode in ("trunc", "floor", None)]
    return *roundings, a % b, torch.fmod(a, b), 7 // a, -7 % a, a // 3


@report("TensorRT-728", dict, (3,), (1,), (5,), inputs=matrix(4))
def inputs_as_outputs(_: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x.t()


@report("TensorRT-3377", dict, (0,), inputs=lambda _: (torch.randn(3, 4), True, None))
def arguments_that_are_no_tensors(_: Any, x: Tensor, doubles: bool, scale: Any) -> dict[str, Any]:
    y = x * 2 if doubles else x
    return {"y": y if scale is None else y * scale, "none": None, "parts": [y.sum(), (y.mean(),)]}


@report(
    "TensorRT-3683", lambda: {"bags": nn.EmbeddingBag(10, 4, mode="mean")}, (3, 6), (2, 9), (5, 8),
    inputs=lambda bags, count: (torch.randint(10, (count,)), torch.arange(bags) * 2),
)  # fmt: skip
def bags_of_any_number(self: Any, indices: Tensor, starts: Tensor) -> Any:
    return self.bags(indices, starts).reshape(-1, 1, 4).relu()


@report(
    "TensorRT-3224", lambda: {"bags": nn.EmbeddingBag(10, 4, mode="sum", padding_idx=0)},
    (3, 4), (1, 2), (5, 6), inputs=lambda *shape: (torch.randint(10, shape),),
)  # fmt: skip
def bags_of_a_matrix(self: Any, indices: Tensor) -> Any:
    return self.bags(indices)


@report(
    "TensorRT-2314", lambda: {"layer": nn.LSTM(4, 5)}, (6, 3), (2, 1), (9, 5),
    inputs=lambda length, batch: (torch.randn(length, batch, 4),),
)  # fmt: skip
def recurrent_layer(self: Any, x: Tensor) -> Any:
    return self.layer(x)[0]


@report(
    "TensorRT-3352",
    lambda: {
        "plain": nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1),
        "odd": nn.ConvTranspose2d(4, 8, (3, 5), (3, 2), (2, 1), (2, 1), groups=2, dilation=(3, 2)),
    },
    (2, 5, 6), (1, 2, 3), (3, 9, 4), inputs=images(4),
)  # fmt: skip
def transposed_convolutions(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return self.plain(x), self.odd(x)


@report(
    "TensorRT-4378", dict, (2, 5), (1, 3), (3, 9),
    inputs=lambda batch, length: (torch.randn(batch, length, 2, 8),),
)  # fmt: skip
def rotary_embedding_of_complex_numbers(_: Any, x: Tensor) -> Tensor:
    speeds = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
    angles = torch.outer(torch.arange(x.shape[1]).float(), speeds)
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns * 2.0 + 1.0
    return torch.view_as_real(turned).flatten(3)


@report(
    "TensorRT-3674", dict, (6, 5, 4), (3, 2, 7), (9, 8, 2),
    inputs=lambda height, width, count: (
        torch.randn(1, 3, height, width), torch.randn(1, 4, count, 2) * 1.5,
    ),
)  # fmt: skip
def samples_outside_of_the_image(_: Any, x: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        F.grid_sample(x, grid, mode, padding, corners)
        for mode, padding, corners in (
            ("bilinear", "border", True), ("nearest", "zeros", False), ("bicubic", "border", False),
        )
    )  # fmt: skip


@report(
    "TensorRT-3347", dict, (6, 5), (1, 1), (10, 3),
    inputs=lambda *counts: tuple(map(torch.randn, counts)),
)  # fmt: skip
def split_by_sizes(_: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.split(torch.cat([x, y]), [x.numel(), y.numel()])


@report("TensorRT-4614", dict, (6,), (1,), (10,), inputs=matrix(2))
def sizes_as_outputs(_: Any, x: Tensor) -> tuple[Any, ...]:
    return x.shape[0], torch.arange(x.shape[0]).sum() + x.sum(), x.numel() * 2


@report(
    "TensorRT-3355", dict, (3,), (1,), (6,), (0,),
    inputs=lambda count: (torch.randn(6, 2), torch.tensor(count)),
    stays={"aten.slice.Tensor": DATA_SIZE},
)  # fmt: skip
def slice_by_a_value(_: Any, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    number = count.item()
    torch._check(0 <= number)
    torch._check(number <= x.shape[0])
    return x[:number] * 2, x[number:] + 1


@report(
    "TensorRT-3974", dict, (2, 5), (1, 3), (3, 8),
    inputs=lambda batch, length: (
        torch.rand(batch, length) > 0.5, torch.randn(batch, 2, length, length),
    ),
)  # fmt: skip
def repeated_masks(_: Any, mask: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    whole = mask[:, None, None].repeat(1, x.shape[1], x.shape[2], 1).float()
    return (whole * x).sum(-1), mask.repeat(2, 3), mask.repeat_interleave(2, 1)


@report(
    "TensorRT-4694", lambda: {"total": torch.zeros(4)}, (2,), (1,), (3,), inputs=matrix(4),
    stays={"aten.copy_.default": WRITES},
)  # fmt: skip
def written_buffer_as_output(self: Any, x: Tensor) -> Any:
    return self.total.add_(x.mean(0))


@report(
    "TensorRT-3964", dict, (2, 5), (1, 3), (3, 9),
    inputs=lambda batch, length: tuple(torch.randn(batch, length, width) for width in (16, 8, 8)),
    stays={"aten.repeat_interleave.self_Tensor": "size depends on the data"},
)  # fmt: skip
def heads_repeated_by_a_tensor(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (tensor.unflatten(2, (-1, 4)).transpose(1, 2) for tensor in (q, k, v))
    times = torch.tensor(q.size(1)) // torch.tensor(k.size(1))
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@report(
    "TensorRT-3923", lambda: {"linear": nn.Linear(4, 4)}, (2, 1), (1, 0), (3, 0), (3, 1),
    inputs=lambda rows, answer: (torch.randn(rows, 4), torch.tensor(bool(answer))),
)  # fmt: skip
def branches(self: Any, x: Tensor, answer: Tensor) -> Any:
    return torch.cond(
        answer, lambda y: (self.linear(y), y.sum(1)), lambda y: (y * 2.0, y.amax(1)), (x,)
    )


@report("TensorRT-2442", dict, (2, 4, 6), (1, 2, 1), (3, 9, 8), inputs=images(3))
def more_parts_than_pixels(_: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return F.adaptive_avg_pool2d(x, (7, 7)), F.adaptive_max_pool2d(x, (3, 5))


@report("torch2trt-480", dict, (2,), (1,), (3,), inputs=matrix(4, 5))
def slices_written_in_place(_: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x.sigmoid(), 2 * x[..., :2]
    y[:, 0:2] = y[:, 0:2].sigmoid()
    z[:, 2:] *= 3
    return y, z


@report(
    "torch2trt-894",
    lambda: {"layer": nn.Conv3d(2, 3, 3, 2, (1, 2, 3), padding_mode="circular")},
    (2,), (1,), (3,), inputs=matrix(2, 4, 4, 4),
)  # fmt: skip
def circular_padding(self: Any, x: Tensor) -> Any:
    return self.layer(x)


@report("torch2trt-901", dict, (2,), (1,), (3,), inputs=matrix(20))
def softplus_with_odd_limits(_: Any, x: Tensor) -> tuple[Tensor, ...]:
    return F.softplus(x, 2, -100), F.softplus(x, -1.5, 3), F.softplus(x * 100, 0.5, 2)


@report("torch2trt-909", dict, (1, 9, 9), (1, 6, 7), (1, 12, 7), inputs=images(3))
def pooling_that_rounds_up(_: Any, x: Tensor) -> tuple[Tensor, ...]:
    pooled = F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True, return_indices=True)
    averages = F.avg_pool2d(x, (2, 3), (3, 2), (1, 0), True, False)
    return *pooled, averages, F.max_pool2d(x, 3, 1, 0, 2, ceil_mode=True)


@report(
    "torch2trt-910", lambda: {"mean": torch.randn(3), "variance": torch.rand(3) + 0.5},
    (2,), (1,), (3,), inputs=matrix(3, 4, 4), stays={"aten.copy_.default": WRITES},
)  # fmt: skip
def statistics_of_the_batch(self: Any, x: Tensor) -> Tensor:
    return F.batch_norm(x, self.mean, self.variance, training=True, momentum=0.3)


@report(
    "torch2trt-209", lambda: {"layer": nn.Conv2d(3, 4, 3), "mean": torch.rand(3, 1, 1)},
    (2,), (1,), (3,),
    inputs=lambda batch: (torch.randint(256, (batch, 3, 6, 6), dtype=torch.uint8),),
)  # fmt: skip
def images_of_bytes(self: Any, x: Tensor) -> Any:
    return self.layer(x.float() / 255 - self.mean)


@report(
    "torch2trt-617",
    lambda: {"layer": nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)},
    (2, 5), (1, 3), (3, 9),
    inputs=lambda batch, length: (
        torch.randn(batch, length, 8),
        torch.arange(length)[None] > torch.arange(batch)[:, None],
    ),
)  # fmt: skip
def attention_with_padding(self: Any, x: Tensor, padding: Tensor) -> Any:
    return self.layer(x, x, x, key_padding_mask=padding)


@report(
    "ComfyUI_TensorRT-80",
    lambda: {"down": nn.Conv2d(3, 4, 3, 2, 1), "deep": nn.Conv2d(4, 4, 3, 2, 1)},
    (2, 16, 24), (1, 7, 9), (3, 25, 41), inputs=images(3),
)  # fmt: skip
def skip_connection(self: Any, x: Tensor) -> Tensor:
    down = self.down(x)
    up = F.interpolate(self.deep(down), size=down.shape[-2:], mode="nearest")
    return torch.cat([up, down], 1)


@report(
    "ComfyUI_TensorRT-43",
    lambda: {"places": nn.Parameter(torch.randn(1, 10, 10, 4)), "patch": nn.Conv2d(3, 4, 2, 2)},
    (2, 16, 12), (1, 8, 8), (3, 20, 18), inputs=images(3), checks_sizes=True,
)  # fmt: skip
def positions_cut_from_the_middle(self: Any, x: Tensor) -> Any:
    height, width = (x.shape[-2] + 1) // 2, (x.shape[-1] + 1) // 2
    top, left = (10 - height) // 2, (10 - width) // 2
    cut = self.places[:, top : top + height, left : left + width].reshape(1, -1, 4)
    return self.patch(x).flatten(2).transpose(1, 2) + cut


@report(
    "ComfyUI_TensorRT-22", lambda: {"linear": nn.Linear(8, 6)}, (2,), (1,), (4,),
    inputs=lambda batch: (torch.randn(batch, 3, 6).half(), torch.rand(batch) * 1000),
    dtype=HALF, tolerance=5e-3,
)  # fmt: skip
def time_in_another_dtype(self: Any, x: Tensor, time: Tensor) -> Any:
    speeds = torch.exp(-math.log(10000) * torch.arange(4, dtype=torch.float32) / 4)
    angles = time[:, None] * speeds
    return x + self.linear(torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype))[:, None]


@report("onnx-tensorrt-192", dict, (1, 6, 5), (1, 3, 2), (1, 9, 11), inputs=images(2))
def resized_by_factors(_: Any, x: Tensor) -> tuple[Tensor, ...]:
    wide = F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)
    return (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, scale_factor=1.5, mode="bilinear"),
        wide,
    )


@report(
    "onnx-tensorrt-198",
    lambda: {"layer": nn.LSTM(4, 5, bidirectional=True), "linear": nn.Linear(10, 3)},
    (2, 10), (1, 5), (3, 16), inputs=lambda batch, width: (torch.randn(batch, 4, 8, width),),
)  # fmt: skip
def text_of_an_image(self: Any, x: Tensor) -> Any:
    columns = F.adaptive_avg_pool2d(x, (1, None)).squeeze(2).permute(2, 0, 1)
    steps, _ = self.layer(columns)
    length, batch, width = steps.shape
    return self.linear(steps.view(length * batch, width)).view(length, batch, -1).log_softmax(2)


@report("onnx-tensorrt-606", dict, (5,), (3,), (9,), inputs=matrix())
def ranking_of_a_vector(_: Any, x: Tensor) -> tuple[Any, ...]:
    return torch.topk(x, 2, dim=0), x.sort(descending=True), x.kthvalue(2), torch.topk(x, 1)[1][0]


@report(
    "optimum-776", dict, (12,), (8,), (20,),
    inputs=lambda length: (torch.randn(1, length, 3),),
    stays={"aten.as_strided.default": "sizes and strides must be fixed"},
)  # fmt: skip
def overlapping_chunks(_: Any, x: Tensor) -> Tensor:
    batch, length, width = x.shape
    chunks = (batch, length // 2 - 1, 4, width)
    return x.as_strided(chunks, (length * width, 2 * width, width, 1)).sum(2)


def dynamic_shapes(calls: Sequence[tuple[Any, ...]], checks_sizes: bool) -> Any:
    """Returns a dimension for each size that differs between calls; equal ones are one dimension."""
    dims: dict[tuple[int, ...], Any] = {}

    def of(*tensors: Any) -> Any:
        if not isinstance(tensors[0], Tensor):
            return None
        shapes = zip(*(tensor.shape for tensor in tensors), strict=True)
        varying = {index: sizes for index, sizes in enumerate(shapes) if len({*sizes}) > 1}
        limits = {
            position: {"min": min(sizes), "max": max(sizes)} for position, sizes in varying.items()
        }
        if checks_sizes:
            return {dimension: Dim.AUTO(**limits[dimension]) for dimension in varying}
        for dimension, sizes in varying.items():
            dims.setdefault(sizes, Dim(f"d{len(dims)}", **limits[dimension]))
        return {position: dims[sizes] for position, sizes in varying.items()} or None

    shapes = tuple(of(*shape) for shape in zip(*calls, strict=True))
    return (shapes,) if any(shapes) else None


def copied(value: Any) -> Any:
    """Returns inputs of their own for a call."""
    return pytree.tree_map_only(Tensor, torch.clone, value)


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.filterwarnings("ignore:No engine was built")
def test_a_report_computes_what_pytorch_does(name: str, version: str, tmp_path: Path) -> None:
    """Twice and from a file, also what a call writes to; what stays in PyTorch is what is known to."""
    del version
    reduction = REPORTS[name]
    torch.manual_seed(0)
    model, calls = reduction.model().eval().to(reduction.dtype), reduction.calls()

    with torch.no_grad():
        compiled = torchtrt.compile(
            copy.deepcopy(model),
            copied(calls[0]),
            dynamic_shapes=dynamic_shapes(calls, reduction.checks_sizes),
            min_block_size=1,
        )
        torchtrt.save(compiled, tmp_path / "compiled.pt2")
        loaded = torchtrt.load(tmp_path / "compiled.pt2")
        for module in (compiled, loaded):
            eager = copy.deepcopy(model)
            for call in (*calls, calls[0]):
                inputs, expected_inputs = copied(call), copied(call)
                expected = eager(*expected_inputs)
                for pair in ((module(*inputs), expected), (inputs, expected_inputs)):
                    torch.testing.assert_close(
                        *pair, rtol=reduction.tolerance, atol=reduction.tolerance, equal_nan=True
                    )

    assert [] == compiled.report.narrowed
    assert {op.op for op in compiled.report.in_torch} == set(reduction.stays)
    for op in compiled.report.in_torch:
        assert reduction.stays[op.op] in op.reason
