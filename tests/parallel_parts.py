"""Checks of ``parallel_program.py`` of models whose rows are divided among the processes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torchtrt
from tests.support.modules import Function
from tests.support.parallel_models import Block, small_parts
from torchtrt.errors import ProcessGroupError, RefitError

BETWEEN = {"min_block_size": 1, "disabled_capabilities": ["DISTRIBUTED_COLLECTIVES"]}
PLAN = {
    **{f"*.{name}": ColwiseParallel() for name in ("query", "up")},
    **{f"*.{name}": RowwiseParallel() for name in ("out", "down")},
}


def parallel_blocks(mesh, factor=1.0):
    """Returns two parallel layers of a transformer, and undivided ones, with weights times a factor."""
    torch.manual_seed(4)
    whole = nn.Sequential(Block(), Block()).eval()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.mul_(factor)
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


class Scaled(nn.Module):
    """A product, its sum over all processes, and other values for it, which may differ in each process."""

    def __init__(self, mesh, **others):
        super().__init__()
        self.group = mesh.get_group().group_name
        generator = torch.Generator().manual_seed(mesh.get_rank())
        self.weight = nn.Parameter(torch.rand(8, 8, generator=generator))
        self.register_buffer("step", torch.full((8,), mesh.get_rank() + 1.0))
        for name, value in others.items():
            self.register_buffer(name, value)

    def forward(self, x, other=None):
        """Returns ``x``'s shape."""
        exchanged = torch.ops._c10d_functional.all_reduce(x @ self.weight, "sum", self.group)
        total = torch.ops._c10d_functional.wait_tensor(exchanged)
        if hasattr(self, "state"):
            other = self.state * 1
            self.state.add_(self.step)
        return total * (self.scale if hasattr(self, "scale") else other)


def check_buffers_that_are_equal_until_they_are_written(mesh, folder):
    """Each process computes all rows with its own value, from the first call on."""
    model, x = Scaled(mesh, state=torch.ones(8)).eval(), torch.rand(4, 8)
    with small_parts(), torch.no_grad():
        compiled = torchtrt.compile(
            copy.deepcopy(model), [x], async_tensor_parallel=True, **BETWEEN
        )
        assert "with 2 rows each" in str(compiled.report.divided)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))


def check_weights_that_were_equal_take_equal_ones(mesh, folder):
    """Others are refused in all ranks, and nothing changes; saved, too."""
    torch.manual_seed(5)
    x, scales = torch.rand(4, 8), {"same": torch.rand(8), "other": torch.rand(8)}
    scales["other"][-1] = mesh.get_rank()
    model, *others = (
        Scaled(mesh, scale=factor).eval() for factor in (torch.ones(8), *scales.values())
    )
    settings = {**BETWEEN, "async_tensor_parallel": True, "immutable_weights": False}
    with small_parts():
        compiled = torchtrt.compile(model, [x], **settings)
    torchtrt.save(compiled, f"{folder}/scaled-{mesh.get_rank()}.pt2")
    for module in (compiled, torchtrt.load(f"{folder}/scaled-{mesh.get_rank()}.pt2")):
        refitted = torchtrt.refit_module_weights(module, others[0])
        torch.testing.assert_close(refitted(x), others[0](x))
        with pytest.raises(RefitError, match="'scale' had the same values in all processes"):
            torchtrt.refit_module_weights(module, others[1])
        torch.testing.assert_close(module(x), model(x))


def check_inputs_whose_examples_differ(mesh, folder):
    """They differ in the calls, too: those of a model, and what a function reads from outside."""
    torch.manual_seed(6)
    x, own = torch.rand(4, 8), torch.rand(8) + mesh.get_rank()
    model = Scaled(mesh).eval()
    expected = model(x, own)
    with small_parts(), torch.no_grad():
        settings = {**BETWEEN, "async_tensor_parallel": True}
        compiled = torchtrt.compile(model, [x, own], **settings)
        assert "with 2 rows each" in str(compiled.report.divided)
        torch.testing.assert_close(compiled(x, own), expected)
        fast = torch.compile(lambda x: model(x, own), backend="torchtrt", options=settings)
        torch.testing.assert_close(fast(x), expected)


def check_ranks_that_divide_other_rows(mesh, folder):
    """They find out while compiling, before one of them ends in an exchange of other sizes."""
    (parallel, _), (whole, _) = parallel_blocks(mesh)
    x = torch.rand(1, 8, 8)
    with small_parts():
        with pytest.raises(ProcessGroupError, match=r"with inputs of the same sizes"):
            torchtrt.compile(
                parallel, [x[:, mesh.get_rank() * 2 :]], async_tensor_parallel=True, **BETWEEN
            )
        compiled = torchtrt.compile(parallel, [x], async_tensor_parallel=True, **BETWEEN)
    torch.testing.assert_close(compiled(x), whole(x))


def check_graphs_of_gradients_stay_whole(mesh, folder):
    """Their weights are inputs, which are equal in all processes until the first step."""
    x, scale = torch.rand(4, 8, generator=torch.Generator().manual_seed(7)), torch.ones(8)
    model = Scaled(mesh, scale=scale)
    with small_parts():
        options = {**BETWEEN, "async_tensor_parallel": True}
        fast = torch.compile(model, backend="torchtrt", options=options)
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))
            scale.add_(mesh.get_rank())


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
        steps = "".join(letters.get(getattr(node.target, "_opname", node.op), "") for node in nodes)
        # An engine runs during each exchange but the last one, whose rows the model returns.
        assert "sw" not in steps.removesuffix("sw")
        assert steps.count("s") == steps.count("w") == 8
