"""Loops and branches of TorchScript: every way through gives PyTorch's values, from one engine."""

import pytest
import torch
from torch import Tensor, nn

import torchtrt_torchscript as torchscript
from torchtrt.errors import ExportError

from .helpers import assert_compiles, script

LENGTH = {0: torch.export.Dim("length", min=2, max=8)}
ONES = torch.ones(3, 4)
FILLED = [(ONES * value,) for value in (1.0, -1.0, 0.3, 9.0)]


def rows(count):
    """Returns rows of numbers."""
    torch.manual_seed(count)
    return (torch.randn(count, 4),)


def test_a_loop_over_a_size_that_varies_reads_its_elements(version):
    """The trip's number selects a row; what is carried goes from trip to trip."""

    def recur(x: Tensor) -> Tensor:
        state = torch.zeros(x.size(1))
        for index in range(x.size(0)):
            state = torch.tanh(state * 0.5 + x[index])
        return state

    assert_compiles(recur, rows(3), rows(2), rows(8), dynamic_shapes=(LENGTH,))


def test_a_loop_writes_its_results_into_a_tensor(version):
    """By the trip's number, in a branch as well; the writes reach the tensor outside."""

    def fill(x: Tensor) -> Tensor:
        results = torch.zeros(8, 4)
        for index in range(x.size(0)):
            if bool(x[index].sum() > 0):
                results[index] = x[index] * 2
            results[index, 1:] += 1.0
        return results

    assert_compiles(fill, rows(3), rows(8), dynamic_shapes=(LENGTH,))


def test_loops_nest(version):
    """With numbers that are carried, and conditions on data and numbers."""

    def grow(x: Tensor) -> Tensor:
        outer = 0
        while bool(x.sum() < 100.0) and outer < 4:
            inner = 0
            while inner < 3 and bool(x.max() < 20.0):
                x = x + 1.0
                inner += 1
            x = x * 1.5
            outer += 1
        return x

    assert_compiles(grow, *FILLED)


def test_branches_and_loops_are_inside_each_other(version):
    """On every TensorRT, also where conditionals cannot nest."""

    def mix(x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            while bool(x.max() < 10):
                if bool(x[0, 0] > 3):  # noqa: SIM108
                    x = x * 2
                else:
                    x = x + 1.5
        else:
            x = x - 1
        return x

    assert_compiles(mix, *FILLED)


def test_a_loop_may_break_continue_and_return(version):
    """Results of ways that are not taken are never read."""

    def leave(x: Tensor) -> Tensor:
        for index in range(5):
            if bool(x[0, 0] > 4):
                continue
            if bool(x.sum() > 25):
                return x * 100
            if bool(x.min() < -4):
                break
            x = x * 1.5 + index * 0.1
        return x - 1

    assert_compiles(leave, *FILLED)


def test_a_function_may_return_early(version):
    """From branches on data, one after the other."""

    def early(x: Tensor) -> Tensor:
        if bool(x.sum() > 5):
            return x * 2
        lower = x - 1
        if bool(lower.max() > -1):
            return lower
        return lower * 3

    assert_compiles(early, *FILLED)


def test_a_branch_writes_to_a_tensor_from_outside(version):
    """Through views taken inside or outside; the other branch leaves it as it is."""

    def inside(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        if bool(x.sum() > 0):
            y[0] = 1.0
        else:
            y[2].mul_(2.0)
        return y, y.sum()

    def outside(x: Tensor) -> Tensor:
        y = x.clone()
        row = y[1]
        if bool(x.sum() > 0):
            row += 5.0
        return y

    assert_compiles(inside, *FILLED)
    assert_compiles(outside, *FILLED)


def test_a_branch_that_writes_to_one_of_two_views_is_an_error():
    """What one view would show of the other is not known."""

    def write(x: Tensor) -> Tensor:
        y = x.clone()
        row = y[1]
        if bool(x.sum() > 0):
            y[0] = row
        return y

    def write_by_data(x: Tensor, position: Tensor) -> Tensor:
        y = x.clone()
        row = y[int(position)]
        if bool(x.sum() > 0):
            y += row
        return y

    with pytest.raises(ExportError, match="another view of it, which was taken outside"):
        torchscript.compile(script(write), (ONES,))
    with pytest.raises(ExportError, match="another view of it, which was taken outside"):
        torchscript.compile(script(write_by_data), (ONES, torch.tensor(1)))


def test_an_operator_takes_a_number_that_depends_on_data(version):
    """As a tensor: its dtype is what it would be with a number."""

    def compute(x: Tensor) -> Tensor:
        count = int(x.sum())
        bounded = min(max(count, 3), 10)
        if count > 5 and bounded < 9:
            x = x * count
        return x.clamp(-bounded, 5) + count // 2 + count % 3 + count**2 + abs(-count)

    assert_compiles(compute, *FILLED)


def test_an_element_is_read_and_written_where_data_says(version):
    """The place is a number that is read out of a tensor; it may count from the end."""

    def change(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        y[int(index)] += 10.0
        y[int(index), 1:] = 0.0
        return y, x[int(index)]

    assert_compiles(change, *((ONES, torch.tensor(index)) for index in (1, 2, -1)))


def test_a_number_that_depends_on_data_can_be_returned():
    """PyTorch reads it out of the engine's result."""

    def count(x: Tensor) -> tuple[Tensor, int]:
        rounds = 0
        while bool(x.norm() > 1.0):
            x = x * 0.5
            rounds += 1
        return x, rounds

    settings = {"require_full_compilation": False, "min_block_size": 1}
    compiled = assert_compiles(count, *FILLED, **settings)

    assert (torch.Tensor, int) == tuple(map(type, compiled(ONES * 9)))


def appended(x: Tensor) -> Tensor:
    """Collects one tensor a trip."""
    results: list[Tensor] = []
    for index in range(x.size(0)):
        results.append(x[index] * 2)
    return torch.stack(results)


def test_a_list_may_grow_where_the_trips_are_known(version):
    """Then the trips are compiled one after the other."""
    assert_compiles(appended, rows(3))


def test_a_list_that_grows_with_data_is_an_error_with_its_line():
    """An engine has no lists; so is one whose element is replaced."""

    def replaced(x: Tensor) -> Tensor:
        parts = [x, x * 2]
        if bool(x.sum() > 0):
            parts[0] = x * 3
        return parts[0] + parts[1]

    with pytest.raises(ExportError, match="changes a list") as caught:
        torchscript.compile(script(appended), rows(3), dynamic_shapes=(LENGTH,))
    assert "results.append(x[index] * 2)" in str(caught.value)
    with pytest.raises(ExportError, match="changes a list"):
        torchscript.compile(script(replaced), rows(3))


def test_ways_that_make_other_shapes_or_dtypes_are_an_error_with_their_line():
    """And so are trips after which a tensor has another shape."""

    def kinds(x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return x
        return x.to(torch.int64)

    def sizes(x: Tensor) -> Tensor:
        while bool(x.sum() < 1000):
            x = torch.cat([x, x])
        return x

    for function, line in ((kinds, "return x"), (sizes, "torch.cat([x, x])")):
        with pytest.raises(ExportError, match="same shapes and dtypes") as caught:
            torchscript.compile(script(function), (ONES,))
        assert line in str(caught.value)


def test_a_loop_that_may_return_before_anything_is_there_is_an_error():
    """It says what to do."""

    def search(x: Tensor) -> Tensor:
        while bool(x.sum() < 100):
            if bool(x[0, 0] > 5):
                return x * 10
            x = x + 1
        return x

    with pytest.raises(ExportError, match="Give the result a value of the same shape before it"):
        torchscript.compile(script(search), (ONES,))


def test_storing_into_an_attribute_in_a_branch_is_an_error():
    """It names the attribute."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if bool(x.sum() > 0):
                self.count = self.count + 1
            return x * self.count

    class Adding(Counting):
        def forward(self, x: Tensor) -> Tensor:
            if bool(x.sum() > 0):
                self.count.add_(1)
            return x * self.count

    for model in (Counting(), Adding()):
        with pytest.raises(ExportError, match="stores into its attribute 'count'"):
            torchscript.compile(script(model), (ONES,))


def leave_by_data(x: Tensor) -> Tensor:
    """Leaves a loop by data, and goes on by a size."""
    i = 0
    while i < 10:
        if bool(x.sum() > 20):
            break
        x = x + 1
        if x.size(0) == 4:
            continue
        i += 1
        x = x * 1.1
        if i > 4:
            break
    return x


def return_by_data(x: Tensor) -> Tensor:
    """Returns early by data, then by a size, then inside a loop."""
    if bool(x.sum() > 0):
        return x * 2
    if x.size(0) > 3:
        if bool(x.max() > 1):
            return x + 3
        for i in range(4):
            if bool(x.sum() < -20):
                return x - i
            x = x - 1
    return x - 1


def skip_by_data(x: Tensor) -> Tensor:
    """Counts trips by data, and leaves by data."""
    i = 0
    total = torch.zeros_like(x)
    while i < x.size(0):
        if bool(x[i].sum() > 0):
            i += 2
            continue
        total = total + x
        if bool(total.sum() < -30):
            break
        i += 1
    return total


@pytest.mark.parametrize("function", [leave_by_data, return_by_data, skip_by_data])
def test_ways_out_depend_on_data_and_on_sizes_that_vary(function, version):
    """Results that may be unset are chosen by element, and have the symbolic sizes of the input."""
    inputs = [
        (x + shift,) for count in (3, 2, 4, 5, 8) for (x,) in [rows(count)] for shift in (0, -3, 3)
    ]
    assert_compiles(function, *inputs, dynamic_shapes=(LENGTH,))


def test_results_of_varying_sizes_that_may_be_unset_are_alike():
    """Or there is no choice of elements between them."""

    def unlike(x: Tensor) -> Tensor:
        result = x
        i = 0
        while i < 10:
            if bool(x.sum() > 20):
                break
            x = x + 1
            result = torch.cat([x, x])
            if x.size(0) == 4:
                continue
            i += 1
        return result

    with pytest.raises(ExportError, match=r"shapes"):
        torchscript.compile(script(unlike), rows(3), dynamic_shapes=(LENGTH,), min_block_size=1)
