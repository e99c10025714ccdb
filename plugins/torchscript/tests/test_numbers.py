"""Numbers that are known only when the engine runs: read out of a tensor, or of sizes that vary."""

import math

import pytest
import torch
from torch import Tensor

import torchtrt_torchscript as torchscript

from .helpers import assert_compiles, assert_same, script
from .ir import function_of, graph_of

BATCH = ({0: torch.export.Dim("batch", min=2, max=8)},)
X = torch.full((3, 4), 0.04)
WAYS = [(X,), (X * 1.7,)]
FUNCTIONS = (
    *("acos", "asin", "atan", "ceil", "cos", "degrees", "erf", "exp", "expm1", "fabs", "floor"),
    *("log", "log10", "log1p", "radians", "round", "sin", "sqrt", "tan", "tanh"),
)


def batches(*sizes):
    """Returns inputs of several sizes."""
    return [(torch.arange(4.0 * size).reshape(size, 4),) for size in sizes]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_number_from_a_tensor_is_torchscripts(name):
    """With its type: a ceiling is an integer."""
    kind = "int" if name in ("ceil", "floor") else "float"
    graph = torch._C.parse_ir(
        f"""graph(%x : Tensor):
  %n : float = aten::FloatImplicit(%x)
  %y : {kind} = aten::{name}(%n)
  return (%y)"""
    )
    exported = torch.export.export(torchscript.open_graph(graph), (torch.tensor(0.7),))

    for value in (0.7, 0.2):
        expected = function_of(graph)(torch.tensor(value, dtype=torch.float64).float())
        actual = exported.module()(torch.tensor(value))
        assert type(expected) is type(actual)
        assert math.isclose(expected, actual, rel_tol=1e-6)


def test_functions_of_numbers_run_in_the_engine(version):
    """As float32, where float64 may be cut."""

    def compute(x: Tensor) -> Tensor:
        n = float(x.sum())
        return x * math.exp(n) + math.fmod(n, 0.3) - math.floor(n * 10) + round(n) + math.tanh(n)

    assert_compiles(compute, *WAYS, truncate_double=True)


def test_functions_of_sizes_that_vary_depend_on_them(version):
    """They are not fixed to the size of the example."""

    def compute(x: Tensor) -> Tensor:
        return x * math.exp(x.size(0)) + math.log(x.size(0) + 1) + math.ceil(x.size(0) / 2)

    assert_compiles(compute, *batches(3, 2, 8), dynamic_shapes=BATCH, truncate_double=True)


def test_conditions_on_sizes_that_vary_are_combined_and_carried(version):
    """By and, or and not; as the condition of a loop, and to leave it."""

    def combined(x: Tensor) -> Tensor:
        n = x.size(0)
        if n > 4 or n == 2:
            x = x + 1
        if n != 3 and not n >= 7:
            x = x * 2
        return x

    def counted(x: Tensor) -> Tensor:
        index = 0
        while index < x.size(0):
            x = x + index
            index += 2
        return x

    def left(x: Tensor) -> Tensor:
        total = x[0] * 0
        for index in range(x.size(0)):
            if index == 2:
                break
            total = total + x[index]
        return total

    for function in (combined, counted, left):
        assert_compiles(function, *batches(5, 2, 3, 8), dynamic_shapes=BATCH)


def test_numbers_from_tensors_are_the_minimum_and_maximum_of_lists(version):
    """Of lists of numbers, some of which are known."""

    def extremes(x: Tensor) -> Tensor:
        n = int(x.sum())
        return x * min([n, 3]) + max([n, 1, 2])

    assert_compiles(extremes, (X * 2,), (X * 9,))


def test_a_tensor_of_a_fraction_is_float64():
    """As TorchScript makes it."""
    for value in (0.1, 3, True):
        graph = graph_of("prim::NumToTensor", (value,))
        actual, expected = torchscript.open_graph(graph)(), function_of(graph)()
        assert expected.dtype is actual.dtype
        assert torch.equal(expected, actual)


def test_lists_are_sorted_and_shortened_and_numbers_written_into_text(version):
    """And a stride is a number."""

    def compute(x: Tensor) -> Tensor:
        values = [3, 1, 2]
        values.sort()
        values.remove(2)
        values.sort(reverse=True)
        text = "%d of %s" % (values[0], "many")  # noqa: UP031
        return x * values[1] + len(text) + x.stride(0) + sum(x.stride())

    assert_compiles(compute, (X,))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_is_forked_is_run(version):
    """Waiting for it gives its result."""

    def compute(x: Tensor) -> Tensor:
        first = torch.jit.fork(torch.relu, x)
        second = torch.jit.fork(torch.sigmoid, x)
        return torch.jit.wait(first) * torch.jit.wait(second)

    assert_compiles(compute, (X - 0.5,), (X,))


def test_an_index_may_leave_out_dimensions(version):
    """In a write too."""

    def write(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, torch.tensor([0, 2])] = 5.0
        y[torch.tensor([1]), torch.tensor([1])] = 7.0
        return y

    assert_compiles(write, (X,))


def test_a_tensor_in_the_place_of_a_number_is_that_number(version):
    """PyTorch reads the only element of a tensor where a scripted method declares a number; so do we, at each call."""

    def model(x, times: int, step: float, negative: bool):
        y = x
        for _ in range(times):
            y = y + step
        return -y if negative else y

    scripted = script(model)
    x = torch.randn(2, 3)
    arguments = (torch.tensor(2), torch.tensor([0.5]), torch.tensor(False))

    compiled = torchscript.compile(scripted, (x, *arguments), truncate_double=True)

    for numbers in (arguments, (torch.tensor(0), torch.tensor([1.5]), torch.tensor(True))):
        assert_same(compiled, scripted, x, *numbers)
