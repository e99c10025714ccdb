"""The program of ``test_two_ranks.py``: two processes that check many things in turn, over gloo."""

import datetime
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

import torchtrt
from torchtrt.errors import ProcessGroupError


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        """Returns ``x``'s shape."""
        heads = self.query(self.norm(x)).unflatten(-1, (-1, 2)).transpose(1, 2)
        read = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(self.up(self.second_norm(x)).relu())


PLAN = {
    "query": ColwiseParallel, "out": RowwiseParallel, "up": ColwiseParallel, "down": RowwiseParallel,
}  # fmt: skip


class Perceptron(nn.Module):
    """Two layers behind a normalization."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        """Returns ``x``'s shape."""
        return self.down(self.up(self.norm(x)).relu())


def check_block(mesh, folder, rank):
    """Sizes vary; saved, each rank reads its own file, and not the other's."""
    torch.manual_seed(0)
    model = Block().eval()
    inputs = [torch.rand(2, 6, 8), torch.rand(3, 5, 8), torch.rand(4, 8, 8)]
    expected = [model(x).detach() for x in inputs]
    parallel = parallelize_module(model, mesh, {name: style() for name, style in PLAN.items()})
    sizes = torchtrt.Input(min_shape=(1, 1, 8), opt_shape=(2, 6, 8), max_shape=(4, 16, 8))
    compiled = torchtrt.compile(parallel, [sizes], min_block_size=1)
    assert len(compiled.report.blocks) == 3
    torchtrt.save(compiled, f"{folder}/model-{rank}.pt2")
    dist.barrier()
    loaded = torchtrt.load(f"{folder}/model-{rank}.pt2")
    for module in (compiled, loaded):
        for x, result in zip(inputs, expected, strict=True):
            torch.testing.assert_close(module(x), result)
    expect_error("Each rank has a file of its own", torchtrt.load, f"{folder}/model-{1 - rank}.pt2")
    return loaded, inputs[0]


def check_sequence_parallel(mesh):
    """Tokens are divided among the processes between the layers."""
    torch.manual_seed(1)
    model, x = Perceptron().eval(), torch.rand(2, 6, 8)
    expected = model(x).detach()
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(),
    }
    compiled = torchtrt.compile(parallelize_module(model, mesh, plan), [x[:, :3]], min_block_size=1)
    part = x.chunk(2, 1)[dist.get_rank()].contiguous()
    torch.testing.assert_close(compiled(part), expected)


def check_backend(mesh):
    """``torch.compile``."""
    torch.manual_seed(2)
    model, x = Perceptron().eval(), torch.rand(2, 8)
    expected = model(x).detach()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallel = parallelize_module(model, mesh, plan)
    with torch.no_grad():
        fast = torch.compile(parallel, backend="torchtrt", options={"min_block_size": 1})
        torch.testing.assert_close(fast(x), expected)


def check_other_collectives(mesh, rank):
    """Ranks whose models differ find it out before the first exchange."""

    class Odd(nn.Module):
        def forward(self, x):
            kind = "sum" if rank else "max"
            group = mesh.get_group().group_name
            total = torch.ops._c10d_functional.all_reduce(x * 2, kind, group)
            return torch.ops._c10d_functional.wait_tensor(total) + 1

    compiled = torchtrt.compile(Odd(), [torch.rand(2)], min_block_size=1)
    expect_error("has other collectives", compiled, torch.rand(2))


def expect_error(words, call, *args):
    """Checks that a call raises a ``ProcessGroupError`` with these words."""
    with pytest.raises(ProcessGroupError, match=words):
        call(*args)


def work(rank, folder):
    """Runs all checks in one process."""
    warnings.simplefilter("ignore")
    limit = datetime.timedelta(seconds=100)
    address = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=limit)
    mesh = init_device_mesh("cpu", (2,))
    check_block(mesh, folder, rank)
    check_sequence_parallel(mesh)
    check_backend(mesh)
    check_other_collectives(mesh, rank)
    loaded = torchtrt.load(f"{folder}/model-{rank}.pt2")
    dist.barrier()
    print("checked", flush=True)
    if rank == 0:  # the other one is gone
        dist.distributed_c10d._get_default_store().set_timeout(datetime.timedelta(seconds=1))
        expect_error("Rank 1 of .* has not called", loaded, torch.rand(2, 6, 8))
        print("missed", flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)
