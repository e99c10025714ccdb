"""``collective_chunks`` divides the rows around all-reduces; ``tests/test_two_ranks.py`` runs it in two processes."""

import random

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import SettingsWarning
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.compiler import export_traced
from torchtrt_compiler.groups import group_of
from torchtrt_compiler.lowering import lower, row_division
from torchtrt_compiler.parallel_models import wait_before_engines
from torchtrt_compiler.partitioning import extract_blocks, partition_nodes
from torchtrt_runtime.executors.inductor import has_stretches

ops = torch.ops._c10d_functional
aten = torch.ops.aten
REDUCE, WAIT = ops.all_reduce.default, ops.wait_tensor.default
VIEWS = {aten.view.default, aten.reshape.default, aten.transpose.int, aten.permute.default}


@pytest.fixture(scope="module", autouse=True)
def world():
    """Rank 0 of two processes, of which this is the only one, and a TensorRT that exchanges nothing itself."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    with torchtrt.use_tensorrt("reference@8.6.0"):
        yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of a single row are enough."""
    monkeypatch.setattr(row_division, "LEAST_ROWS", 1)


class Exchanging(torch.fx.Interpreter):
    """Runs a graph with sines for sums, and checks that nothing reads one before it is waited for."""

    def __init__(self, module, pending=None):
        super().__init__(module)
        self.pending = {} if pending is None else pending

    def call_function(self, target, args, kwargs):
        if target is REDUCE:
            result = torch.sin(args[0])
            self.pending[result.untyped_storage()._cdata] = result
            return result
        if target is WAIT:
            self.pending.pop(args[0].untyped_storage()._cdata, None)
            return args[0]
        if target not in VIEWS:
            self.check(args)
        return super().call_function(target, args, kwargs)

    def call_module(self, target, args, kwargs):
        self.check(args)
        return Exchanging(self.fetch_attr(target), self.pending).run(*args)

    def check(self, args):
        for each in torch.utils._pytree.tree_leaves(args):
            if isinstance(each, torch.Tensor):
                assert each.untyped_storage()._cdata not in self.pending


def reduced(x):
    """The sum over all processes."""
    return ops.wait_tensor(ops.all_reduce(x, "sum", "0"))


def lowered(model, *inputs, **settings):
    """Returns the lowered program of a model."""
    with torch.no_grad():
        exported = export_traced(model.eval(), inputs, {}, None)
        return lower(exported, CompilationSettings(min_block_size=1, **settings))


def check_same_results(model, *inputs, parts=2, exact=False):
    """Checks a divided program, and its blocks, against the undivided one; returns the divided program."""
    with torch.no_grad():
        expected = Exchanging(lowered(model, *inputs).graph_module).run(*inputs)
        program = lowered(model, *inputs, collective_chunks=parts)
        graph = program.graph_module.graph
        partition = partition_nodes(graph, CompilationSettings(min_block_size=1))
        assert all(len(set(map(group_of, each))) == 1 for each in partition.blocks.values())
        split, _ = extract_blocks(program.graph_module, partition, program.mutated)
        wait_before_engines(split)
        exactly = {"rtol": 0, "atol": 0} if exact else {}
        for module in (program.graph_module, split):
            torch.testing.assert_close(Exchanging(module).run(*inputs), expected, **exactly)
    return program


def weight(*shape):
    """A weight whose products are of the size of what it multiplies."""
    return torch.randn(*shape) / shape[0] ** 0.5


class Layer(nn.Module):
    """A layer of a transformer, whose attention and perceptron end in a sum over all processes."""

    def __init__(self, size=8, bias=False):
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(size), nn.RMSNorm(size)
        names = ("query", "key", "value", "out", "gate", "up", "down")
        for name in names:
            setattr(self, name, nn.Linear(size, size, bias))

    def forward(self, x):
        normed = self.norm(x)
        heads = [
            each(normed).unflatten(-1, (2, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        ]
        read = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + reduced(self.out(read.transpose(1, 2).flatten(2)))
        normed = self.second_norm(x)
        return x + reduced(self.down(F.silu(self.gate(normed)) * self.up(normed)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("shape", "parts"), [((1, 8, 8), 4), ((2, 6, 8), 2)])
def test_two_layers_are_divided(shape, parts, bias):
    """From the first attention's last product on, with attention whole where the rows are its tokens."""
    model = nn.Sequential(Layer(bias=bias), Layer(bias=bias))
    x = torch.randn(shape)

    program = check_same_results(model, x, parts=parts)

    rows = shape[1] // parts if shape[0] == 1 else shape[0] // parts
    assert len(program.divided) == 4
    assert all(f"divided into {parts} parts of {rows} rows" in line for line in program.divided)
    targets = [node.target for node in program.graph_module.graph.nodes]
    assert targets.count(REDUCE) == targets.count(WAIT) == 4 * parts
    assert targets.count(aten.scaled_dot_product_attention.default) == (
        2 if shape[0] == 1 else 1 + parts
    )


def test_parts_take_turns():
    """A part is exchanged while the next one computes: it is waited for as late as possible."""
    first, second, third = (weight(4, 4) for _ in range(3))
    model = Function(lambda x: reduced(reduced(x @ first) @ second) @ third)
    program = check_same_results(model, torch.randn(6, 4), parts=3, exact=True)

    names = {
        REDUCE: "reduce",
        WAIT: "wait",
        aten.matmul.default: "product",
        aten.mm.default: "product",
    }
    nodes = program.graph_module.graph.nodes
    order = [names[node.target] for node in nodes if node.target in names]

    middle = ["wait", "product", "reduce"]
    assert order == ["product", "reduce"] * 3 + middle * 3 + ["wait", "product"] * 3


def test_inductor_leaves_collectives_where_they_are():
    """A segment of ops would begin them, and wait for them, as a whole."""
    for function, is_segment in (
        (lambda x: reduced(x).relu(), False),
        (lambda x: x.relu() * 2, True),
    ):
        program = lowered(Function(function), torch.randn(6, 4))
        assert has_stretches(program.graph_module) == is_segment


W, V = weight(4, 4), weight(4, 4)
POSITIONS = torch.randn(6, 4)
PROGRAMS = {
    "a gated perceptron": lambda x: reduced((F.silu(x @ W) * (x @ V)) @ W) + x,
    "a bias": lambda x: reduced(F.linear(x, W, V[0])).softmax(-1),
    "two products": lambda x: reduced(x @ W + x.relu() @ V) * x[:, :1],
    "a constant for each row": lambda x: reduced(x @ W) * POSITIONS,
    "a value over all rows": lambda x: (y := reduced(x @ W)) * y.mean(0, keepdim=True) + y,
    "columns": lambda x: reduced(W @ x.t()).t().flip(1),
    "a result that leaves the model": lambda x: (y := reduced(x @ W), y + 1),
    "one that is not waited for in the same form": lambda x: ops.wait_tensor(
        ops.all_reduce(x @ W, "max", "0").view(-1).view(2, 12)
    ),
    "another order of the rows": lambda x: reduced(x @ W).flip(0) + x,
    "a new dimension": lambda x: reduced(x @ W)[None].expand(3, 6, 4).sum(0),
    "parts of the columns": lambda x: torch.cat(reduced(x @ W).split(2, -1)[::-1], -1),
    "random numbers after it": lambda x: reduced(x @ W) + 0 * torch.rand(6, 4) + torch.zeros(4),
    "several sums": lambda x: reduced(reduced(reduced(x @ W) @ V) @ W),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_divided_program_computes_the_same(name):
    """In the lowered graph, and with its blocks."""
    program = check_same_results(Function(PROGRAMS[name]), torch.randn(6, 4))

    assert any("divided into 2 parts of 3 rows" in line for line in program.divided)


@pytest.mark.parametrize(("rows", "copies"), [(128, 0), (6, 2)])
def test_parts_begin_where_engines_can_read_them(rows, copies):
    """Which is at a multiple of 256 bytes: other parts are copied. Neither is a constant, which no other part has."""
    model = Function(lambda x: reduced(x @ W) + positions)
    positions = torch.randn(rows, 4)
    program = check_same_results(model, torch.randn(rows, 4))

    targets = [node.target for node in program.graph_module.graph.nodes]
    assert targets.count(aten.slice.Tensor) == 4
    assert targets.count(aten.clone.default) == 2 * copies


@pytest.mark.parametrize(
    ("function", "parts", "least", "words"),
    [
        (lambda x: reduced(x @ W), 4, 1, "matmul has 6 rows, which are not 4 equal parts"),
        (lambda x: reduced(x @ W), 2, 4, "would have 3 rows, which is less than 4"),
        (lambda x: reduced(x * 2), 2, 1, "no matrix product leads to it row by row"),
        (lambda x: reduced((x @ W).cumsum(0)), 2, 1, "no matrix product leads to it row by row"),
    ],
)
def test_the_program_has_the_reason_against_dividing(function, parts, least, words, monkeypatch):
    """The program is what it is without the setting."""
    monkeypatch.setattr(row_division, "LEAST_ROWS", least)
    model, x = Function(function), torch.randn(6, 4)

    program = lowered(model, x, collective_chunks=parts)

    (line,) = program.divided
    assert words in line
    whole = lowered(model, x).graph_module.graph
    assert [str(node) for node in program.graph_module.graph.nodes] == list(map(str, whole.nodes))


def test_rows_whose_number_varies_stay_together():
    """A part of them would have a size that varies, too."""
    model = Function(lambda x: reduced(x @ W)).eval()
    sizes = torchtrt.Input(min_shape=(4, 4), opt_shape=(6, 4), max_shape=(8, 4))

    report = torchtrt.explain(model, [sizes], min_block_size=1, collective_chunks=2)

    assert "varies" in report.divided[0]


def test_another_size_may_vary():
    """The rows are a fixed dimension behind a batch of any size."""
    model = Function(
        lambda x: reduced(F.layer_norm(reduced(x @ W) + x, (4,)) @ V).softmax(-1)
    ).eval()
    sizes = torchtrt.Input(min_shape=(1, 6, 4), opt_shape=(2, 6, 4), max_shape=(4, 6, 4))

    compiled = torchtrt.compile(model, [sizes], min_block_size=1, collective_chunks=2)

    assert all("2 parts of 3 rows" in line for line in compiled.report.divided)
    assert len(compiled.report.divided) == 2
    for batch in (1, 3, 4):
        x = torch.randn(batch, 6, 4)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_sequence_parallel_programs_stay_as_they_are():
    """What is scattered and gathered along the rows cannot be divided."""

    def function(x):
        part = ops.wait_tensor(ops.reduce_scatter_tensor(x @ W, "sum", 2, "0"))
        return ops.wait_tensor(ops.all_gather_into_tensor(part.relu(), 2, "0"))

    with pytest.warns(
        SettingsWarning, match="collective_chunks=2, and the program has no all-reduce"
    ):
        report = torchtrt.explain(
            Function(function).eval(), [torch.randn(6, 4)], min_block_size=1, collective_chunks=2
        )

    assert not report.divided


def test_engines_that_exchange_tensors_themselves_are_not_divided():
    """They would run one after the other all the same; a warning says so."""
    model = Function(lambda x: reduced(x @ W)).eval()
    with (
        torchtrt.use_tensorrt("reference@11.4.0"),
        pytest.warns(SettingsWarning, match="engines exchange all tensors themselves"),
    ):
        report = torchtrt.explain(model, [torch.randn(6, 4)], min_block_size=1, collective_chunks=2)

    assert "its engine exchanges the tensor" in report.divided[0]


STEPS = {
    "product": lambda x, y, w, dim: reduced(x @ w),
    "linear": lambda x, y, w, dim: reduced(F.linear(x, w, w[0]).relu()),
    "flat": lambda x, y, w, dim: reduced((x.reshape(-1, len(w)) @ w).view(x.shape)),
    "gated": lambda x, y, w, dim: reduced((x @ w).sigmoid() * (y @ w.t()) @ w),
    "sum": lambda x, y, w, dim: x + y,
    "norm": lambda x, y, w, dim: F.layer_norm(x, (len(w),), w[0]),
    "softmax": lambda x, y, w, dim: torch.softmax(x, dim),
    "mean": lambda x, y, w, dim: x * y.mean(dim, keepdim=True),
    "turned": lambda x, y, w, dim: (x.transpose(0, -1) * 2).transpose(0, -1),
    "summed up": lambda x, y, w, dim: x.cumsum(dim) / 4,
    "chosen": lambda x, y, w, dim: torch.where(x > 0, y, x),
    "heads": lambda x, y, w, dim: torch.stack(x.unflatten(-1, (2, -1)).unbind(-2), -1).flatten(-2),
    "joined": lambda x, y, w, dim: torch.cat([x, y], dim).narrow(dim, 1, x.shape[dim]),
    "selected": lambda x, y, w, dim: x - y.select(dim, -1).unsqueeze(dim),
}


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))]
)
def test_a_random_program_computes_the_same(seed):
    """Of products, sums over processes, and steps along any dimension, in any order."""
    choices = random.Random(seed)
    shape = choices.choice([(1, 8, 4), (2, 4, 4), (12, 4), (4, 6, 4), (1, 7, 4)])
    steps = [
        (
            STEPS[choices.choice(sorted(STEPS))],
            choices.random(),
            weight(4, 4),
            choices.randrange(len(shape)),
        )
        for _ in range(8)
    ]

    def function(x):
        values = [x]
        for step, place, factor, dim in steps:
            values.append(step(values[-1], values[int(place * len(values))], factor, dim))
        return values[-1], values[4]

    check_same_results(Function(function), torch.randn(shape), parts=2 + seed % 3)
