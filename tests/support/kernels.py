"""Ops with kernels of their own, as a pack registers them."""

from __future__ import annotations

from typing import Any

import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.packs import PackInfo

INFO = PackInfo("kernels", "their-kernels", "1.2", "/packs")
Tensor = torch.Tensor


@torch.library.custom_op("engine_kernels::windows", mutates_args=())
def windows(x: Tensor, size: int, step: int = 1) -> Tensor:
    """Returns the windows over the last dimension, behind the others."""
    return x.unfold(-1, size, step).contiguous()


@windows.register_fake
def _(x: Tensor, size: int, step: int = 1) -> Tensor:
    return x.new_empty(*x.shape[:-1], (x.shape[-1] - size) // step + 1, size)


@torch.library.custom_op("engine_kernels::rank", mutates_args=())
def rank(
    x: Tensor, descending: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns sorted values, their places, and whether they are positive."""
    values, positions = x.sort(-1, descending=descending)
    return values.to(dtype or x.dtype), positions, values > 0


@rank.register_fake
def _(
    x: Tensor, descending: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(x, dtype=dtype or x.dtype),
        torch.empty_like(x, dtype=torch.int64),
        torch.empty_like(x, dtype=torch.bool),
    )


@torch.library.custom_op("engine_kernels::blend", mutates_args=())
def blend(
    parts: list[Tensor],
    weights: list[float],
    mode: str,
    clip: float | None = None,
    dims: list[int] | None = None,
) -> Tensor:
    """Returns a weighted sum, or a concatenation."""
    scaled = [part * weight for part, weight in zip(parts, weights, strict=True)]
    total = (
        torch.cat(scaled, dims[0] if dims else 0) if mode == "cat" else torch.stack(scaled).sum(0)
    )
    return total if clip is None else total.clamp(max=clip)


@blend.register_fake
def _(
    parts: list[Tensor],
    weights: list[float],
    mode: str,
    clip: float | None = None,
    dims: list[int] | None = None,
) -> Tensor:
    return torch.cat(parts, dims[0] if dims else 0) if mode == "cat" else torch.empty_like(parts[0])


@torch.library.custom_op("engine_kernels::above", mutates_args=())
def above(x: Tensor) -> Tensor:
    """Returns the positive elements."""
    return x[x > 0]


@above.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op(
    "engine_kernels::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def noise(x: Tensor) -> Tensor:
    """Returns random numbers."""
    return torch.rand_like(x)


@noise.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::wrong", mutates_args=())
def wrong(x: Tensor) -> Tensor:
    """Returns one row less than its fake implementation."""
    return x[1:].clone()


@wrong.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::failing", mutates_args=())
def failing(x: Tensor) -> Tensor:
    """Raises."""
    raise ValueError("the kernel gave up")


@failing.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::sparse", mutates_args=())
def sparse(x: Tensor) -> Tensor:
    """Returns a tensor without strides."""
    return x.to_sparse()


@sparse.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("engine_kernels::on_gpu", mutates_args=(), device_types="cuda")
def on_gpu(x: Tensor) -> Tensor:
    """Has an implementation for GPUs alone."""
    return x.clone()


@on_gpu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


OPS = (windows, rank, blend, above, noise, wrong, failing, sparse, on_gpu)


def compiled(function: Any, inputs: list[Any], **settings: Any) -> tuple[Any, Any]:
    """Returns a function as a model, and what becomes of it; all of it is in engines."""
    model = Function(function).eval()
    settings = {"require_full_compilation": True, **settings}
    return model, torchtrt.compile(model, inputs, **settings)


def rows(low: int, usual: int, high: int, *rest: int, **more: Any) -> torchtrt.Input:
    """Returns an input whose first dimension varies."""
    return torchtrt.Input(
        min_shape=(low, *rest), opt_shape=(usual, *rest), max_shape=(high, *rest), **more
    )


class Blending(torch.nn.Module):
    """A weight that only a plugin reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x: Tensor) -> Tensor:
        """Blends the input with the weight."""
        return blend([x, self.weight], [1.0, 2.0], "sum") + 1
