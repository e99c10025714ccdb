"""``async_tensor_parallel`` divides rows among processes; ``tests/test_two_ranks.py`` runs it in two processes."""

import functools
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchtrt
from tests.support.modules import Function
from tests.support.parallel_models import small_parts
from tests.support.simulated_ranks import (
    REDUCE,
    SHIFT,
    WAIT,
    as_rank,
    check_same_results,
    exported,
    lowered,
    reduced,
)
from torchtrt.errors import SettingsWarning
from torchtrt_converters_distributed.rows import division
from torchtrt_runtime.executors.inductor import has_stretches, segments_of

ops = torch.ops._c10d_functional
aten = torch.ops.aten
PRODUCTS = {aten.matmul.default, aten.mm.default, aten.linear.default}


def weight(*shape):
    """A weight whose products are of the size of what it multiplies."""
    return torch.randn(*shape) / shape[0] ** 0.5


W = weight(4, 4)


@pytest.fixture(autouse=True)
def parts_of_any_size():
    """Parts of a single row are enough, and TensorRT exchanges nothing itself."""
    with small_parts(), torchtrt.use_tensorrt("reference@8.6.0"):
        yield


@pytest.fixture
def two_ranks():
    """Rank 0 of two processes."""
    with as_rank(0, 2):
        yield


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
            module(normed).unflatten(-1, (2, -1)).transpose(1, 2)
            for module in (self.query, self.key, self.value)
        ]
        read = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + reduced(self.out(read.transpose(1, 2).flatten(2)))
        normed = self.second_norm(x)
        return x + reduced(self.down(F.silu(self.gate(normed)) * self.up(normed)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("shape", "count"), [((1, 8, 8), 4), ((2, 6, 8), 2), ((1, 6, 8), 3)])
def test_two_layers_are_divided(shape, count, bias, monkeypatch):
    """From the first attention's last product on. Each process has normalizations and sums of its own rows only."""
    models = [nn.Sequential(Layer(bias=bias), Layer(bias=bias)) for _ in range(count)]
    x = torch.randn(shape)

    programs = check_same_results(models, x, monkeypatch=monkeypatch)

    rows = shape[1] // count if shape[0] == 1 else shape[0] // count
    for program in programs:
        assert len(program.divided) == 4
        words = f"divided among {count} processes, with {rows} rows each."
        assert all(words in line for line in program.divided)
        targets = [node.target for node in program.graph_module.graph.nodes]
        assert REDUCE not in targets
        # Four sums, rows for two perceptrons and one attention, and the result of the model.
        assert targets.count(SHIFT) == 8 * (count - 1)
        heads = program.graph_module.graph.find_nodes(
            op="call_function", target=aten.scaled_dot_product_attention.default
        )
        assert len(heads) == (2 if shape[0] == 1 else 1 + count)  # divided with its samples


def order_of(program):
    """Returns the products, exchanges and waits of a program, in order."""
    names = {SHIFT: "shift", WAIT: "wait", **dict.fromkeys(PRODUCTS, "product")}
    nodes = program.graph_module.graph.nodes
    return [names[node.target] for node in nodes if node.target in names]


def test_products_run_during_exchanges(monkeypatch):
    """A process's own rows come first while others arrive, and last while the terms of others leave."""

    def model_of_rank():
        first, second, third = (weight(4, 4) for _ in range(3))
        return Function(lambda x: reduced(reduced(x @ first).sin() @ second @ third))

    models = [model_of_rank(), model_of_rank()]
    programs = check_same_results(models, torch.randn(6, 4), monkeypatch=monkeypatch)

    for program in programs:
        first_sum = ["product", "shift", "product", "wait"]
        perceptron = ["shift", "product", "wait", "product", "product", "shift", "product", "wait"]
        result = ["shift", "wait"]
        assert order_of(program) == first_sum + perceptron + result


def test_rows_that_several_products_read_are_exchanged_once(monkeypatch):
    """Whatever views are between."""
    models = [
        Function(functools.partial(PROGRAMS["the same rows in other forms"], w=w, v=w))
        for w in (weight(4, 4), weight(4, 4))
    ]
    programs = check_same_results(models, torch.randn(6, 4), monkeypatch=monkeypatch)

    for program in programs:
        targets = [node.target for node in program.graph_module.graph.nodes]
        assert targets.count(SHIFT) == 4  # of two sums, of the rows between, and of the result


def test_a_row_that_the_model_takes_is_exchanged_alone(monkeypatch):
    """As the last token of a prompt."""
    models = [Function(lambda x, w=w: reduced(x @ w)[-1] @ w) for w in (weight(4, 4), weight(4, 4))]
    programs = check_same_results(models, torch.randn(6, 4), monkeypatch=monkeypatch)

    for program in programs:
        shifts = program.graph_module.graph.find_nodes(op="call_function", target=SHIFT)
        assert [tuple(shift.meta["val"].shape) for shift in shifts] == [(3, 4), (1, 4)]


def test_inductor_computes_during_exchanges(two_ranks):
    """A segment of ops ends where an exchange begins, and where it ends."""
    model = Function(lambda x: reduced(F.gelu(reduced((x + 1) @ W).sin() * 2 @ W) @ W))
    program = lowered(exported(model, torch.randn(6, 4)), async_tensor_parallel=True)

    names = {SHIFT: "shift", WAIT: "wait", **dict.fromkeys(PRODUCTS, "product")}
    order = [
        names.get(segment.target) if isinstance(segment, torch.fx.Node) else "segment"
        for segment in segments_of(program.graph_module)
    ]

    first_sum = ["segment", "shift", "product", "wait", "segment"]
    perceptron = ["shift", "segment", "wait", "segment", "shift", "product", "wait"]
    result = ["shift", "wait"]
    assert [segment for segment in order if segment] == first_sum + perceptron + result


def test_inductor_leaves_collectives_where_they_are(two_ranks):
    """A segment of ops would begin them, and wait for them, as a whole."""
    for function, is_segment in (
        (lambda x: reduced(x).relu(), False),
        (lambda x: x.relu() * 2, True),
    ):
        program = lowered(exported(Function(function), torch.randn(6, 4)))
        assert has_stretches(program.graph_module) == is_segment


POSITIONS = torch.randn(6, 4)
PROGRAMS = {
    "a gated perceptron": lambda x, w, v: reduced((F.silu(x @ w) * (x @ v)) @ w) + x,
    "a bias": lambda x, w, v: reduced(F.linear(x, w, v[0])).softmax(-1),
    "two products": lambda x, w, v: reduced(x @ w + x.relu() @ v) * x[:, :1],
    "a constant for each row": lambda x, w, v: reduced(x @ w) * POSITIONS,
    "a value over all rows": lambda x, w, v: (y := reduced(x @ w)) * y.mean(0, keepdim=True) + y,
    "columns": lambda x, w, v: reduced(w @ x.t()).t().flip(1),
    "a result that leaves the model": lambda x, w, v: (y := reduced(x @ w), y + 1),
    "one that is not waited for in the same form": lambda x, w, v: ops.wait_tensor(
        ops.all_reduce(x @ w, "max", "0").view(-1).view(2, 12)
    ),
    "another order of the rows": lambda x, w, v: reduced(x @ w).flip(0) + x,
    "a new dimension": lambda x, w, v: reduced(x @ w)[None].expand(3, 6, 4).sum(0),
    "parts of the columns": lambda x, w, v: torch.cat(reduced(x @ w).split(2, -1)[::-1], -1),
    "random numbers after it": lambda x, w, v: (
        reduced(x @ w) + 0 * torch.rand(6, 4) + torch.zeros(4)
    ),
    "several sums": lambda x, w, v: reduced(reduced(reduced(x @ w) @ v) @ w),
    "a sum of sums": lambda x, w, v: reduced(reduced(x @ w).exp() / 9),
    "what differs in each process": lambda x, w, v: reduced((reduced(x @ w) * v[0]).tanh() @ w),
    "a difference that leaves the model": lambda x, w, v: (reduced(x @ w) * v[0], v[0]),
    "the last row": lambda x, w, v: (reduced(x @ w).sin()[-1] @ v, x[0]),
    "some rows": lambda x, w, v: reduced(x @ w)[3:5] * reduced(x @ v)[0:2] + x[1:3],
    "rows of several parts": lambda x, w, v: (y := reduced(x @ w))[1:5] * y[::4][:1],
    "the same rows in other forms": lambda x, w, v: reduced(
        ((y := reduced(x @ w).tanh())[None].view(6, 4) @ w) * (y.view(3, 2, 4).view(6, 4) @ v)
    ),
    "the smallest": lambda x, w, v: reduced(x @ w, "min") - reduced(x @ v, "product"),
}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_divided_program_computes_the_same(name, count, monkeypatch):
    """In the lowered graph, and with its blocks."""
    models = [
        Function(functools.partial(PROGRAMS[name], w=weight(4, 4), v=weight(4, 4)))
        for _ in range(count)
    ]
    programs = check_same_results(models, torch.randn(6, 4), monkeypatch=monkeypatch)

    words = f"divided among {count} processes, with {6 // count} rows each"
    assert all(any(words in line for line in program.divided) for program in programs)


def test_a_number_that_differs_makes_different_values(monkeypatch):
    """Each process multiplies all rows by its own number; 1 leaves out the multiplication."""
    models = [
        Function(lambda x, factor=factor: reduced((reduced(x @ W) * factor).sin() @ W) * factor)
        for factor in (1, 2, 3)
    ]
    check_same_results(models, torch.randn(6, 4), monkeypatch=monkeypatch)


@pytest.mark.parametrize(("rows", "copies"), [(128, 0), (6, 1)])
def test_parts_begin_where_engines_can_read_them(rows, copies, monkeypatch):
    """Which is at a multiple of 256 bytes: other parts are copied. Neither is a constant, which no other part has."""
    positions = torch.randn(rows, 4)
    model = Function(lambda x: reduced(x @ W) + positions)
    models = [model, model]
    programs = check_same_results(models, torch.randn(rows, 4), monkeypatch=monkeypatch)

    for rank, program in enumerate(programs):
        targets = [node.target for node in program.graph_module.graph.nodes]
        assert targets.count(aten.slice.Tensor) == 3  # two parts of the input, one of the positions
        assert targets.count(aten.clone.default) == copies * (1 + rank)  # the first rows need none


@pytest.mark.parametrize(
    ("function", "count", "least", "words"),
    [
        (lambda x: reduced(x @ W), 4, 1, "matmul has 6 rows, which are not 4 equal parts"),
        (lambda x: reduced(x @ W), 2, 4, "would have 3 rows, which is less than 4"),
        (lambda x: reduced(x * 2), 2, 1, "no matrix product leads to it row by row"),
        (lambda x: reduced((x @ W).cumsum(0)), 2, 1, "no matrix product leads to it row by row"),
        (lambda x: reduced(x @ W, "avg"), 2, 1, "its kind of reduction is 'avg'"),
        (lambda x: reduced(x @ W), 1, 1, "its process group has one process"),
    ],
)
def test_the_program_has_the_reason_against_dividing(function, count, least, words, monkeypatch):
    """The program is what it is without the setting."""
    monkeypatch.setattr(division, "LEAST_ROWS", least)
    model, x = Function(function), torch.randn(6, 4)
    with as_rank(0, count):
        program = lowered(exported(model, x), async_tensor_parallel=True)
        whole = lowered(exported(model, x)).graph_module.graph

    (line,) = program.divided
    assert words in line
    assert [str(node) for node in program.graph_module.graph.nodes] == list(map(str, whole.nodes))


def test_rows_whose_number_varies_stay_together(two_ranks):
    """A part of them would have a size that varies, too."""
    model = Function(lambda x: reduced(x @ W)).eval()
    sizes = torchtrt.Input(min_shape=(4, 4), opt_shape=(6, 4), max_shape=(8, 4))

    report = torchtrt.explain(model, [sizes], min_block_size=1, async_tensor_parallel=True)

    assert "varies" in report.divided[0]


def test_another_size_may_vary(two_ranks):
    """The rows are a fixed dimension behind a batch of any size. Those of a single sample may begin anywhere."""
    model = Function(lambda x: reduced(F.layer_norm(reduced(x @ W) + x, (4,)) @ W)).eval()
    sizes = torchtrt.Input(min_shape=(1, 6, 4), opt_shape=(2, 6, 4), max_shape=(4, 6, 4))

    report = torchtrt.explain(model, [sizes], min_block_size=1, async_tensor_parallel=True)

    assert all("2 processes, with 3 rows each" in line for line in report.divided)
    assert len(report.divided) == 2
    assert "to an aligned address" in str(report.in_torch)


def test_sequence_parallel_programs_stay_as_they_are(two_ranks):
    """What is scattered and gathered along the rows has no all-reduce."""

    def function(x):
        part = ops.wait_tensor(ops.reduce_scatter_tensor(x @ W, "sum", 2, "0"))
        return ops.wait_tensor(ops.all_gather_into_tensor(part.relu(), 2, "0"))

    with pytest.warns(
        SettingsWarning, match="async_tensor_parallel=True, and the program has no all-reduce"
    ):
        report = torchtrt.explain(
            Function(function).eval(),
            [torch.randn(6, 4)],
            min_block_size=1,
            async_tensor_parallel=True,
        )

    assert not report.divided


def test_engines_that_exchange_tensors_themselves_are_not_divided(two_ranks):
    """They would run one after the other all the same; a warning says so."""
    model = Function(lambda x: reduced(x @ W)).eval()
    with (
        torchtrt.use_tensorrt("reference@11.4.0"),
        pytest.warns(SettingsWarning, match="engines exchange all tensors themselves"),
    ):
        report = torchtrt.explain(
            model, [torch.randn(6, 4)], min_block_size=1, async_tensor_parallel=True
        )

    assert "its engine exchanges the tensor" in report.divided[0]


STEPS = {
    "product": lambda x, y, w, v, dim: reduced(x @ w),
    "linear": lambda x, y, w, v, dim: reduced(F.linear(x, w, w[0]).relu()),
    "flat": lambda x, y, w, v, dim: reduced((x.reshape(-1, len(w)) @ w).view(x.shape)),
    "gated": lambda x, y, w, v, dim: reduced((x @ w).sigmoid() * (y @ w.t()) @ w),
    "sum": lambda x, y, w, v, dim: x + y,
    "norm": lambda x, y, w, v, dim: F.layer_norm(x, (len(w),), v[0]),
    "norm that differs": lambda x, y, w, v, dim: F.layer_norm(x, (len(w),), w[0]),
    "largest": lambda x, y, w, v, dim: reduced((x @ v + y @ w), "max"),
    "softmax": lambda x, y, w, v, dim: torch.softmax(x, dim),
    "mean": lambda x, y, w, v, dim: x * y.mean(dim, keepdim=True),
    "turned": lambda x, y, w, v, dim: (x.transpose(0, -1) * 2).transpose(0, -1),
    "summed up": lambda x, y, w, v, dim: x.cumsum(dim) / 4,
    "chosen": lambda x, y, w, v, dim: torch.where(x > 0, y, x),
    "heads": lambda x, y, w, v, dim: torch.stack(x.unflatten(-1, (2, -1)).unbind(-2), -1).flatten(
        -2
    ),
    "joined": lambda x, y, w, v, dim: torch.cat([x, y], dim).narrow(dim, 1, x.shape[dim]),
    "selected": lambda x, y, w, v, dim: x - y.select(dim, -1).unsqueeze(dim),
}


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))]
)
def test_a_random_program_computes_the_same(seed, monkeypatch):
    """Of products, sums over processes, and steps along any dimension, in any order."""
    choices = random.Random(seed)
    count = 2 + seed % 3
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

    def of_rank(rank):
        torch.manual_seed(rank)
        own = [weight(4, 4) for _ in steps]

        def function(x):
            values = [x]
            for (step, position, equal, dim), factor in zip(steps, own, strict=True):
                operand = values[int(position * len(values))]
                values.append(step(values[-1], operand, factor, equal, dim))
            return values[-1], values[4]

        return Function(function)

    models = [of_rank(rank) for rank in range(count)]
    check_same_results(models, torch.randn(shape), monkeypatch=monkeypatch)
