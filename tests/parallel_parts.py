"""Checks of ``parallel_program.py`` of models whose rows are divided among the processes."""

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
from torchtrt_compiler.lowering import async_tensor_parallel

BETWEEN = {"min_block_size": 1, "disabled_capabilities": ["DISTRIBUTED_COLLECTIVES"]}
PLAN = {
    **{f"*.{name}": ColwiseParallel() for name in ("query", "up")},
    **{f"*.{name}": RowwiseParallel() for name in ("out", "down")},
}


@contextlib.contextmanager
def small_parts() -> Iterator[None]:
    """Divides any number of rows, in a ``with`` block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(async_tensor_parallel, "LEAST_ROWS", 1)
        yield


def parallel_blocks(mesh, factor=1.0):
    """Returns two parallel layers of a transformer, and undivided ones, with weights times a factor."""
    torch.manual_seed(4)
    whole = nn.Sequential(Block(), Block()).eval()
    with torch.no_grad():
        for each in whole.parameters():
            each.mul_(factor)
    return parallelize_module(copy.deepcopy(whole), mesh, PLAN), whole


def check_rows_are_divided(mesh, folder):
    """Engines are called once for each part; saved, copied, and with other weights."""
    (parallel, _), (whole, _) = parallel_blocks(mesh)
    (other, _), (other_whole, _) = parallel_blocks(mesh, 1.1)
    x = torch.rand(1, 8, 8)
    settings = {**BETWEEN, "async_tensor_parallel": True, "immutable_weights": False}
    with small_parts():
        compiled = torchtrt.compile(parallel, [x], **settings)
    assert all("with 4 rows each" in line for line in compiled.report.divided)
    assert {row.calls for row in compiled.report.blocks} == {1, 2}
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
        compiled = torchtrt.compile(parallel[0], [x], async_tensor_parallel=True, **BETWEEN)
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


def check_divided_rows_with_torch_compile(mesh, folder):
    """``torch.compile`` takes the setting."""
    (parallel, _), (whole, _) = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    options = {**BETWEEN, "async_tensor_parallel": True}
    with small_parts(), torch.no_grad():
        fast = torch.compile(parallel, backend="torchtrt", options=options)
        torch.testing.assert_close(fast(x), whole(x))


def check_tuning_tries_divided_rows(mesh, folder):
    """The ranks measure it, and keep or leave it together."""
    (parallel, _), (whole, _) = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    with small_parts():
        compiled = torchtrt.compile(parallel, [x], tune=True, **BETWEEN)
    torch.testing.assert_close(compiled(x), whole(x))
    tried = compiled.report.tried[-1]
    assert tried.startswith("with rows divided among the processes: ")
    assert compiled.settings.async_tensor_parallel == tried.endswith(", kept")


def check_the_order_of_parts(mesh, folder):
    """A process waits for rows behind the products of its own ones, in all layers, saved or not."""
    parallel, whole = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    with small_parts(), torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(parallel, [x], min_block_size=1, async_tensor_parallel=True)
    file = f"{folder}/older-{mesh.get_rank()}.pt2"
    torchtrt.save(compiled, file)
    for module in (compiled, torchtrt.load(file)):
        torch.testing.assert_close(module(x), whole(x))
        nodes = module.graph_module.graph.nodes
        letters = {"shift": "s", "wait_tensor": "w", "call_module": "e"}
        steps = "".join(letters.get(getattr(each.target, "_opname", each.op), "") for each in nodes)
        # An engine runs during each exchange but the last one, whose rows the model returns.
        assert "sw" not in steps.removesuffix("sw")
        assert steps.count("s") == steps.count("w") == 8
