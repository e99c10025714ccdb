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
from tests.support.modules import Function
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
    """Engines are called once for each part; saved, copied, and with other weights."""
    (parallel, _), (whole, _) = parallel_blocks(mesh)
    (other, _), (other_whole, _) = parallel_blocks(mesh, 1.1)
    x = torch.rand(1, 8, 8)
    settings = {**BETWEEN, "collective_chunks": 4, "immutable_weights": False}
    with small_parts():
        compiled = torchtrt.compile(parallel, [x], **settings)
    assert all("divided into 4" in line for line in compiled.report.divided)
    assert {row.calls for row in compiled.report.blocks} == {1, 4}
    file = f"{folder}/parts-{mesh.get_rank()}.pt2"
    torchtrt.save(compiled, file)
    for module in (compiled, torchtrt.load(file), copy.deepcopy(compiled)):
        torch.testing.assert_close(module(x), whole(x))
    refitted = torchtrt.refit_module_weights(compiled, other)
    torch.testing.assert_close(refitted(x), other_whole(x))


def check_a_batch_is_divided_by_samples(mesh, folder):
    """Attention is divided, too: each part has whole samples."""
    parallel, whole = parallel_blocks(mesh)
    x = torch.rand(4, 6, 8)
    with small_parts():
        compiled = torchtrt.compile(parallel[0], [x], collective_chunks=2, **BETWEEN)
    assert len(compiled.report.divided) == 2
    torch.testing.assert_close(compiled(x), whole[0](x))


def check_an_engine_with_collectives_that_runs_twice(mesh, folder):
    """Each of its calls exchanges tensors; saved, too."""
    group = mesh.get_group().group_name

    def step(x):
        exchanged = torch.ops._c10d_functional.all_reduce(x * 2 + 1, "sum", group)
        return torch.ops._c10d_functional.wait_tensor(exchanged).cos()

    model = Function(lambda x: step(step(step(x).erfinv()).erfinv()).erfinv())
    x = torch.rand(3) / 9 + mesh.get_rank() / 5
    compiled = torchtrt.compile(model, [x], min_block_size=1, torch_executed_ops={"aten.erfinv"})
    assert [row.calls for row in compiled.report.blocks] == [3]
    file = f"{folder}/twice-{mesh.get_rank()}.pt2"
    torchtrt.save(compiled, file)
    for module in (compiled, torchtrt.load(file)):
        torch.testing.assert_close(module(x), model(x), equal_nan=True)


def check_parts_with_torch_compile(mesh, folder):
    """``torch.compile`` takes the setting."""
    (parallel, _), (whole, _) = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    options = {**BETWEEN, "collective_chunks": 2}
    with small_parts(), torch.no_grad():
        fast = torch.compile(parallel, backend="torchtrt", options=options)
        torch.testing.assert_close(fast(x), whole(x))


def check_the_order_of_parts(mesh, folder):
    """A part is waited for behind the exchange of the next one, in all layers, saved or not."""
    parallel, whole = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    with small_parts(), torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(parallel, [x], min_block_size=1, collective_chunks=2)
    file = f"{folder}/older-{mesh.get_rank()}.pt2"
    torchtrt.save(compiled, file)
    for module in (compiled, torchtrt.load(file)):
        torch.testing.assert_close(module(x), whole(x))
        ops = [getattr(node.target, "_opname", "") for node in module.graph_module.graph.nodes]
        exchanges = [name for name in ops if name in ("all_reduce", "wait_tensor")]
        begin, turn, end = ["all_reduce"] * 2, ["wait_tensor", "all_reduce"], ["wait_tensor"] * 2
        assert exchanges == [*begin, *turn * 2, *end] * 2
