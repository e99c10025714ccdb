"""Checks of ``parallel_program.py`` of models whose rows are divided around all-reduces."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torchtrt
from tests.support.parallel_models import Block
from torchtrt_compiler.lowering import row_division

BETWEEN = {"min_block_size": 1, "disabled_capabilities": ["DISTRIBUTED_COLLECTIVES"]}
PLAN = {
    **{f"*.{name}": ColwiseParallel() for name in ("query", "up")},
    **{f"*.{name}": RowwiseParallel() for name in ("out", "down")},
}


@contextlib.contextmanager
def small_parts() -> Iterator[None]:
    """Divides any number of rows, in a ``with`` block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_division, "LEAST_ROWS", 1)
        yield


def parallel_blocks(mesh, factor=1.0):
    """Returns two parallel layers of a transformer, and undivided ones, with weights times a factor."""
    torch.manual_seed(4)
    whole = nn.Sequential(Block(), Block()).eval()
    with torch.no_grad():
        for each in whole.parameters():
            each.mul_(factor)
    return parallelize_module(copy.deepcopy(whole), mesh, PLAN), whole


def check_parts_are_exchanged_in_turn(mesh, folder):
    """Engines are called once for each part: of one sample, and of a batch; saved, copied, and with other weights."""
    parallel, whole = parallel_blocks(mesh)
    other, other_whole = parallel_blocks(mesh, 1.1)
    for x, parts in ((torch.rand(1, 8, 8), 4), (torch.rand(4, 6, 8), 2)):
        settings = {**BETWEEN, "collective_chunks": parts, "immutable_weights": False}
        with small_parts():
            compiled = torchtrt.compile(parallel, [x], **settings)
        assert all(f"divided into {parts}" in line for line in compiled.report.divided)
        assert parts in {row.calls for row in compiled.report.blocks}
        file = f"{folder}/parts-{mesh.get_rank()}.pt2"
        torchtrt.save(compiled, file)
        loaded = torchtrt.load(file)
        undivided = torchtrt.compile(parallel, [x], **BETWEEN)(x)
        for module in (compiled, loaded, copy.deepcopy(compiled)):
            torch.testing.assert_close(module(x), whole(x))
            torch.testing.assert_close(module(x), undivided, rtol=1e-6, atol=1e-6)
        refitted = torchtrt.refit_module_weights(compiled, other)
        torch.testing.assert_close(refitted(x), other_whole(x))


def check_parts_in_other_front_ends(mesh, folder):
    """``torch.compile`` takes the setting; an older TensorRT exchanges the parts in the same order, saved or not."""
    parallel, whole = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    with small_parts(), torch.no_grad():
        fast = torch.compile(
            parallel, backend="torchtrt", options={**BETWEEN, "collective_chunks": 2}
        )
        torch.testing.assert_close(fast(x), whole(x))
        with torchtrt.use_tensorrt("reference@8.6.0"):
            older = torchtrt.compile(parallel, [x], min_block_size=1, collective_chunks=2)
    file = f"{folder}/older-{mesh.get_rank()}.pt2"
    torchtrt.save(older, file)
    for module in (older, torchtrt.load(file)):
        torch.testing.assert_close(module(x), whole(x))
        ops = [getattr(node.target, "_opname", "") for node in module.graph_module.graph.nodes]
        exchanges = [name for name in ops if name in ("all_reduce", "wait_tensor")]
        turn = ["wait_tensor", "all_reduce"]
        assert exchanges == [
            *["all_reduce"] * 2, *turn * 2, *["wait_tensor"] * 2,
            *["all_reduce"] * 2, *turn * 2, *["wait_tensor"] * 2,
        ]  # fmt: skip
