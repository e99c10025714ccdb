"""Several names of one tensor: a write under one is seen under the others, also after what depends on data."""

import copy

import pytest
import torch
from torch import Tensor, nn

import torchtrt_torchscript as torchscript
from torchtrt.errors import ExportError, InputError

from .helpers import quiet, script

X = torch.arange(12.0).reshape(3, 4) - 2
WAYS = [(X,), (-X,), (X + 9,)]


def assert_follows(function, *calls, **options):
    """Compares results and inputs with eager, call after call; the module of both keeps its state."""
    scripted = script(copy.deepcopy(function))
    compiled = torchscript.compile(scripted, calls[0], min_block_size=1, **options)
    for inputs in calls:
        ours, theirs = ([tensor.clone() for tensor in inputs] for _ in range(2))
        actual, expected = compiled(*ours), function(*theirs)
        torch.testing.assert_close((actual, ours), (expected, theirs), rtol=1e-4, atol=1e-4)


def test_a_write_after_a_branch_reaches_the_tensor_that_both_ways_give_on():
    """It is one tensor, and here the caller's."""

    def add(x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            x += 1
        x += 1
        return x

    assert_follows(add, *WAYS)


def test_a_write_to_one_of_two_tensors_reaches_the_one_that_was_chosen():
    """And what is written to either is seen under the name of the chosen one."""

    def write(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, z = x * 1, x * 2
        w = y
        if bool(x.sum() > 0):
            w = z
        w += 1
        y *= 3
        z *= 5
        return w, y, z

    def write_if_new(x: Tensor) -> tuple[Tensor, Tensor]:
        w = x
        if bool(x.sum() > 0):
            w = x * 2
        w += 1
        return w, x

    assert_follows(write, *WAYS)
    assert_follows(write_if_new, *WAYS)


def test_a_loop_that_writes_in_place_writes_to_the_tensor_it_was_given():
    """Also through a view, and to what the caller passed or the module keeps."""

    class Summing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("sums", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            sums = self.sums
            for index in range(x.size(0)):
                if bool(x[index].sum() > 0):
                    sums += x[index]
            return sums * 2

    def rows(x: Tensor) -> Tensor:
        y = x * 2
        z = y[0]
        while bool(z.sum() < 20):
            z += 1
        return y

    assert_follows(Summing(), *WAYS)
    length = {0: torch.export.Dim("length", min=2, max=8)}
    assert_follows(Summing(), *WAYS, (torch.ones(5, 4),), dynamic_shapes=(length,))
    assert_follows(rows, *WAYS)


def test_a_write_after_a_loop_reaches_what_the_loop_may_not_have_replaced():
    """With no trip it is the tensor from before."""

    def replace(x: Tensor) -> Tensor:
        y = x
        while bool(y.sum() < 0):
            y = y.abs()
        y += 1
        return y

    assert_follows(replace, *WAYS)


def test_an_element_at_a_place_that_depends_on_data_is_a_view():
    """Writes to the tensor are seen in the element, and writes to the element in the tensor and in other elements."""

    def element(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        row = y[int(x.argmax().item()) % 3]
        y += 1
        return row, y

    def elements(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        position = int(x.argmax().item()) % 3
        row, same, part = y[position], y[position], y[position][1]
        row += 1
        same *= 2
        part.fill_(7.0)
        return row, same, y

    def in_a_branch(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        row = y[int(x.argmax()) % 3]
        if bool(x.sum() > 0):
            row += 1
        return y, row

    for function in (element, elements, in_a_branch):
        assert_follows(function, *WAYS)


def test_a_part_at_a_place_that_depends_on_data_is_a_view():
    """As a trace takes it."""

    def narrow(x, start):
        y = x * 2
        part = y.narrow(0, start, 2)
        y += 1
        part *= 2
        return part, y

    traced = quiet(torch.jit.trace, narrow, (X, torch.tensor(1)))
    for start in (0, 1):
        compiled = torchscript.compile(traced, (X, torch.tensor(1)), min_block_size=1)
        torch.testing.assert_close(compiled(X, torch.tensor(start)), narrow(X, torch.tensor(start)))


def test_a_number_read_out_of_a_tensor_is_what_the_tensor_held_then():
    """Not what is written to the tensor later."""

    def count(x: Tensor, n: Tensor) -> Tensor:
        before = int(n)
        n += 5
        return x * before

    assert_follows(count, (X, torch.tensor(2)), (X, torch.tensor(3)))


def test_a_branch_writes_to_what_a_dictionary_holds():
    """The tensor in it is the one outside."""

    def double(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        held = {"a": y}
        if bool(x.sum() > 0):
            held["a"].mul_(2)
        return held["a"], y

    assert_follows(double, *WAYS)


def test_a_branch_chooses_between_views():
    """They may lie anywhere in their tensor."""

    def choose(x: Tensor) -> Tensor:
        return x[0] if bool(x.sum() > 0) else x[1]

    def turn(x: Tensor) -> Tensor:
        return x.t() if bool(x.sum() > 0) else x.view(4, 3)

    assert_follows(choose, *WAYS)
    assert_follows(turn, *WAYS)


def test_what_is_a_view_or_a_copy_by_layout_is_not_guessed():
    """A branch gives its result another layout; a write to what is made of it would show."""

    def read(x: Tensor) -> Tensor:
        y = x.t() if bool(x.sum() > 0) else x.view(4, 3)
        return y.reshape(12) + 1

    def write(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        z = y.t() if bool(x.sum() > 0) else y.view(4, 3) * 1
        w = z.contiguous()
        w += 1
        return w, z

    assert_follows(read, *WAYS)
    with pytest.raises(ExportError, match=r"clone") as caught:
        torchscript.compile(script(write), (X,), min_block_size=1)
    assert "w = z.contiguous()" in str(caught.value)


def test_storing_into_a_buffer_gives_it_another_tensor():
    """The old one is what it was, and the new one is written to under its other names too."""

    class Storing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(3, 4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            old = self.last
            y = x * 2
            self.last = y
            y += 1
            return old, old[0] + 0, self.last * 1

    assert_follows(Storing(), *WAYS)


def swapped(x: Tensor) -> Tensor:
    """Writes to two tensors that change places."""
    y, z = x * 1, x * 2
    while bool(y.sum() < 20):
        y += 1
        y, z = z, y
    return y


def written_once(x: Tensor) -> Tensor:
    """Writes to the caller's tensor in the first trip only."""
    while bool(x.sum() < 20):
        x += 1
        x = x * 2
    return x


def part_of_one(x: Tensor) -> Tensor:
    """Writes to one of two views."""
    y = x * 2
    row = y[0]
    if bool(x.sum() > 0):
        row = y[1]
    row += 1
    return y


@pytest.mark.parametrize(
    ("function", "line"),
    [(swapped, "y, z = z, y"), (written_once, "x = x * 2"), (part_of_one, "row += 1")],
)
def test_what_cannot_be_followed_is_refused_with_its_line(function, line):
    """The message says what to do."""
    with pytest.raises(ExportError, match=r"clone") as caught:
        torchscript.compile(script(function), (X,), min_block_size=1)
    assert line in str(caught.value)


def _by_stride(x: Tensor) -> Tensor:
    return x * x.stride(0)


def _by_layout(x: Tensor) -> Tensor:
    if x.is_contiguous():
        return x * 2
    return x * 3


def _by_layout_of_a_view(x: Tensor) -> Tensor:
    if x.t().is_contiguous():
        return x * 2
    return x * 3


def _by_offset(x: Tensor) -> Tensor:
    return x + x.storage_offset()


@pytest.mark.parametrize("function", [_by_stride, _by_layout, _by_layout_of_a_view, _by_offset])
def test_code_that_reads_strides_takes_inputs_in_the_memory_of_the_example(function):
    """Its answers are those for the example."""
    rows = torch.rand(6, 4)
    compiled = torchscript.compile(script(function), (rows[:4],), min_block_size=1)

    torch.testing.assert_close(compiled(rows[:4].clone()), function(rows[:4].clone()))
    other = rows[2:] if function is _by_offset else rows[:4].t()
    with pytest.raises(InputError, match="The model reads memory by strides"):
        compiled(other)
