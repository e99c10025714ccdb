"""Resampling by a factor, for which TensorRT's layer would take the ratio of the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.resampling import KINDS, unlike_formula

aten = torch.ops.aten


def _register(op: Any) -> None:
    """Registers PyTorch's own decomposition of an op, for the sizes for which eager PyTorch computes the same."""

    @pack.decomposition(op)
    def resample(
        input: Tensor, output_size: Sequence[int] | None, *others: Any, **named: Any
    ) -> Tensor:
        *aligned, factors = (*others, *named.values())
        lengths = () if output_size is not None or any(aligned) else input.shape[2:]
        for length, factor in zip(lengths, factors or (), strict=False):
            reason = unlike_formula(KINDS[op], len(lengths), length, factor)
            if reason is not None:
                raise NotImplementedError(reason)
        result: Tensor = op.decompose(input, output_size, *aligned, factors)
        return result


for _op in (
    aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec,
    aten.upsample_nearest2d.vec, aten._upsample_nearest_exact2d.vec, aten.upsample_bicubic2d.vec,
):  # fmt: skip
    _register(_op)
