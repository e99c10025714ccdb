"""Adopts the modules of ``published`` and compiles what they are for: with Torch-TensorRT if its folder is given."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

if len(sys.argv) > 1:
    from tests.benchmarks.peer import stand_in

    stand_in(Path(sys.argv[1]))

import torchtrt
from torchtrt.errors import PackError
from torchtrt_converters_torch_tensorrt import adopt

sys.path.insert(0, str(Path(__file__).parents[1] / "published"))
library = torch.library.Library("published", "DEF")


def op(schema: str):
    """Returns a decorator that defines an op by what it computes."""

    def define(function):
        library.define(f"{function.__name__}{schema}")
        library.impl(function.__name__, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"published::{function.__name__}", function)
        return function

    return define


@op("(Tensor x, Tensor weight, float eps=1e-5) -> Tensor")
def rms_norm(x, weight, eps=1e-5):
    """Rows divided by the root of their mean square."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@op("(Tensor x, SymInt count) -> Tensor")
def repeat_rows(x, count):
    """One row, several times."""
    return x.expand(count, x.shape[1]).contiguous()


@op("(Tensor x) -> (Tensor, Tensor)")
def extremes(x):
    """The least and the greatest of each row."""
    return x.amin(1), x.amax(1)


@op("(Tensor x) -> Tensor")
def count_all(x):
    """How many elements there are."""
    return torch.full((), x.numel(), dtype=torch.int32)


@op("(Tensor x, Tensor y) -> Tensor")
def like_rows(x, y):
    """As rows of the second's size."""
    return x.reshape(-1, *y.shape).clone()


@op("(Tensor x, Tensor weight) -> Tensor")
def weighted(x, weight):
    """A sum."""
    return x + weight


@op("(Tensor x, Tensor y, float share) -> Tensor")
def blend(x, y, share):
    """A weighted mean."""
    return x * share + y * (1 - share)


class Model(torch.nn.Module):
    """A function with a weight."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self, x):
        """Calls the function."""
        return self.function(x, self.weight)


ops = torch.ops.published
MODELS = {
    "scaled_gelu": lambda x, w: torch.nn.functional.gelu(x, approximate="tanh"),
    "rms_norm": lambda x, w: ops.rms_norm(x, w, 1e-6),
    "repeat_rows": lambda x, w: ops.repeat_rows(x[:1], x.shape[0] * 2 + 1),
    "extremes": lambda x, w: ops.extremes(x),
    "count_all": lambda x, w: ops.count_all(x),
    "like_rows": lambda x, w: ops.like_rows(x, w),
    "weighted": lambda x, w: ops.weighted(x, w),
    "lowering": lambda x, w: ops.blend(torch.exp(torch.log(x * x + 1)), x, 0.25),
}
SETTINGS = {"lowering": {"torch_enabled_decompositions": {"published::blend"}}}

for module in ("plugin_ops", "plugin_converters", "plugin_registry"):
    try:
        adopt(module)
        print("adopted", module)
    except PackError as error:
        print(error)
for module in ("scaled_gelu", "rows", "lowering"):
    adopt(module)
size = torch.export.Dim("size", min=2, max=8)
for name, function in MODELS.items():
    model, x = Model(function).eval(), torch.randn(4, 6)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: size},))
    settings = SETTINGS.get(name, {})
    compiled = torchtrt.compile(program, require_full_compilation=True, **settings)
    for rows in (2, 4, 8):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    theirs = [
        row for row in compiled.report.converted if row.pack.split()[0] in ("scaled_gelu", "rows")
    ]
    print(name, *(row.converter for row in theirs), *compiled.report.passes)
print(*sys.modules["lowering"].SEEN[:2])
