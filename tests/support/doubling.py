"""An op with a converter, whose kernel in PyTorch a test writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

import torchtrt
from torchtrt.packs import ConverterPack, PackInfo, add_pack, use_packs


@contextlib.contextmanager
def doubling_op(kernel: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Iterator[Any]:
    """Yields an op that returns twice a tensor in an engine, until the end of a ``with`` block.

    Args:
        kernel: Computes it in PyTorch on a CPU; without it PyTorch cannot run the op.
    """
    with torch.library._scoped_library("torchtrt_doubling", "FRAGMENT") as library, use_packs():
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", torch.empty_like, "Meta")
        if kernel is not None:
            library.impl("double", kernel, "CPU")
        op, pack = torch.ops.torchtrt_doubling.double.default, ConverterPack("doubling")

        @pack.converter(op, supports_dynamic_shapes=True)
        def double(ctx: Any, x: Any) -> Any:
            sum_ = torchtrt.trt.ElementWiseOperation.SUM
            return ctx.net.add_elementwise(x, x, sum_).get_output(0)

        add_pack(pack, PackInfo("doubling", "their-doubling", "1.2", "/packs"))
        yield op
