"""Ops besides the elementwise ones whose converters read no size: see ``CheckedPack.reads_no_sizes``."""

from __future__ import annotations

import torch

from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.converters.matmul import PRODUCTS, SUMS_OF_PRODUCTS
from torchtrt_converters_aten_core.converters.reduction import TOTALS, TRUTHS

aten = torch.ops.aten

pack.reads_no_sizes(
    *(aten.permute.default, aten.transpose.int, aten.swapdims.default, aten.unsqueeze.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
    *(aten.select.int, aten.select_copy.int, aten.unbind.int, aten.stack.default),
    *(aten.cat.default, aten.concat.default, aten.concatenate.default),
    *(aten.embedding.default, aten.index_select.default),
    *(aten.index.Tensor, aten._unsafe_index.Tensor),
    *(*TOTALS, *TRUTHS),
    *(aten.linear.default, *PRODUCTS, *SUMS_OF_PRODUCTS),
    *(aten.softmax.int, aten._softmax.default),
)
