"""Processes of a parallel program, simulated by threads of one process."""

import contextlib
import functools
import threading

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from torchtrt.graphs.nodes import group_of
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.exporting.export import export
from torchtrt_compiler.exporting.parallel_models import wait_before_engines
from torchtrt_compiler.lowering import lower
from torchtrt_compiler.partitioning import extract_blocks, partition_nodes
from torchtrt_runtime.processes import meetings

ops = torch.ops._c10d_functional
aten = torch.ops.aten
REDUCE, WAIT = ops.all_reduce.default, ops.wait_tensor.default
SHIFT = torch.ops.torchtrt_collectives.shift.default
VIEWS = {aten.view.default, aten.reshape.default, aten.transpose.int, aten.permute.default}


@contextlib.contextmanager
def as_rank(rank, count):
    """One of several processes, of which this is the only one, in a ``with`` block."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Exchange:
    """What threads exchange that stand for processes."""

    def __init__(self, count):
        self.count = count
        self.inputs = [None] * count
        self.barrier = threading.Barrier(count, timeout=60)

    def all(self, rank, value):
        """Returns what all ranks pass, and checks that they do the same."""
        self.inputs[rank] = value
        self.barrier.wait()
        values = list(self.inputs)
        self.barrier.wait()
        assert len({what for what, _ in values}) == 1
        return [tensor for _, tensor in values]


JOINS = {
    "sum": torch.add,
    "product": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "avg": lambda x, y: (x + y) / 2,
}


class Rank(torch.fx.Interpreter):
    """Runs the graph of a process, and checks that nothing reads what was not waited for."""

    def __init__(self, module, rank, exchange, pending=None):
        super().__init__(module)
        self.rank, self.exchange = rank, exchange
        self.pending = {} if pending is None else pending

    def call_function(self, target, args, kwargs):
        """Exchanges tensors with the other threads, or calls an op of PyTorch."""
        if target is REDUCE:
            return self.begun(functools.reduce(JOINS[args[1]], self.passed(args[0], args[1])))
        if target is SHIFT:
            position = (self.rank + args[1]) % self.exchange.count
            return self.begun(self.passed(args[0], args[1])[position].clone())
        if target is WAIT:
            self.pending.pop(args[0].untyped_storage()._cdata, None)
            return args[0]
        if target not in VIEWS:
            self.check(args)
        return super().call_function(target, args, kwargs)

    def passed(self, value, what):
        self.check(value)
        return self.exchange.all(self.rank, (what, value))

    def begun(self, result):
        self.pending[result.untyped_storage()._cdata] = result
        return result

    def call_module(self, target, args, kwargs):
        self.check(args)
        return Rank(self.fetch_attr(target), self.rank, self.exchange, self.pending).run(*args)

    def check(self, args):
        for leaf in torch.utils._pytree.tree_leaves(args):
            if isinstance(leaf, torch.Tensor):
                assert leaf.untyped_storage()._cdata not in self.pending


def results(modules, inputs):
    """Returns what each rank computes, all of them at once."""
    exchange, ranks = Exchange(len(modules)), [None] * len(modules)

    def run(rank):
        try:
            with torch.no_grad():
                ranks[rank] = Rank(modules[rank], rank, exchange).run(*inputs)
        except BaseException as error:
            ranks[rank] = error
            exchange.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(modules))]
    for worker in threads:
        worker.start()
    for thread in threads:
        thread.join()
    for worker in ranks:
        if isinstance(worker, Exception) and not isinstance(worker, threading.BrokenBarrierError):
            raise worker
    return ranks


def reduced(x, kind="sum"):
    """The sum over all processes."""
    return ops.wait_tensor(ops.all_reduce(x, kind, "0"))


def exported(model, *inputs):
    """Returns the exported program of a model."""
    with torch.no_grad():
        return export(model.eval(), inputs, {}, None)


def lowered(program, **settings):
    """Returns the lowered program of an exported one."""
    with torch.no_grad():
        return lower(program, CompilationSettings(min_block_size=1, **settings))


def divided_everywhere(programs, monkeypatch):
    """Returns the divided program of each rank. All weights that are equal count as equal."""
    weights = []

    def lower_all(joined):
        def agree(processes, about, value, combine):
            return joined(value, combine) if about == "the weights of a model" else value

        monkeypatch.setattr(meetings, "agreed", agree)
        for rank, program in enumerate(programs):
            with as_rank(rank, len(programs)):
                yield lowered(program, async_tensor_parallel=True)

    list(lower_all(lambda value, combine: weights.append(value) or value))
    return list(lower_all(lambda value, combine: functools.reduce(combine, weights)))


def check_same_results(models, *inputs, monkeypatch):
    """Checks divided programs, and their blocks, against the undivided ones; returns the divided programs."""
    exported_programs, whole = [], []
    for rank, model in enumerate(models):
        with as_rank(rank, len(models)):
            exported_programs.append(exported(model, *inputs))
            whole.append(lowered(exported_programs[-1]).graph_module)
    expected = results(whole, inputs)
    programs = divided_everywhere(exported_programs, monkeypatch)
    blocks = []
    for program in programs:
        partition = partition_nodes(
            program.graph_module.graph, CompilationSettings(min_block_size=1)
        )
        assert all(len(set(map(group_of, block))) == 1 for block in partition.blocks.values())
        split, _ = extract_blocks(program.graph_module, partition, program.mutated)
        wait_before_engines(split)
        blocks.append(split)
    for modules in ([program.graph_module for program in programs], blocks):
        torch.testing.assert_close(results(modules, inputs), expected)
    return programs
