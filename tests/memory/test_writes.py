"""What a model writes to, and reads under another name, is eager PyTorch's or an error that says what to do."""

import copy

import pytest
import torch
from torch import nn

import torchtrt
from tests.memory.test_results import Stateful, compiled, x  # noqa: F401  (a fixture)
from tests.support.in_pytorch import left_in_pytorch
from torchtrt.errors import InputError, UnsupportedProgramError

# What stays in PyTorch, all of it if need be, keeps the same law.
pytestmark = [
    pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]


def assert_eager(modules, *inputs, calls=3):
    """Checks results, inputs and state against eager PyTorch, call after call."""
    eager, source, module = modules
    for _ in range(calls):
        ours, theirs = ([tensor.clone() for tensor in inputs] for _ in range(2))
        torch.testing.assert_close(module(*ours), eager(*theirs), rtol=0, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        torch.testing.assert_close(source.state_dict(), eager.state_dict(), rtol=0, atol=0)


def swap(self, x):
    """The buffer becomes the input, and the input the buffer."""
    before = self.h.clone()
    self.h.copy_(x)
    x.copy_(before)


def swap_inputs(self, x, y):
    """Each input becomes the other."""
    before = x.clone()
    x.copy_(y)
    y.copy_(before)
    return x + y


def flip(self, x):
    """A buffer becomes a rearrangement of itself."""
    self.h.copy_(self.h.flip(0))
    self.h.view(-1).copy_(self.h.t().reshape(-1))
    return x * self.h


def number(self, x):
    """A number that is read before the write."""
    first = self.h[0, 1].item()
    self.h.add_(1)
    return first, x * 1


def steps(self, x):
    """The state after each of several writes."""
    states = []
    for _ in range(3):
        self.h.add_(x)
        states.append(self.h.clone())
    return states


def rows(self, x):
    """Writes by index, and through views of what is written."""
    y = x * 2
    y[0] = x[1]
    row = y[1]
    row.add_(5)
    y[:, 0] = 3
    return y, row


def parameter(self, x):
    """A parameter is written to."""
    self.w.mul_(2)
    return x * self.w


def through_dropout(self, x):
    """Dropout in eval mode returns its argument."""
    before = nn.functional.dropout(x, 0.5, False)
    x.add_(1)
    self.h.t()[0].copy_(x.t()[0])
    return before * 1


def on_dropout(self, x):
    """Writing to what dropout returned writes to the argument."""
    nn.functional.dropout(x, 0.5, False).add_(1)
    return x * 1


def through_einsum(self, x):
    """An einsum that only reorders is a view."""
    torch.einsum("ij->ji", x).mul_(2)
    return x * 1


def through_meshgrid(self, x):
    """So is what meshgrid returns."""
    return torch.meshgrid(x[0].clone(), x[1].clone(), indexing="ij")


ONE_INPUT = [
    swap,
    flip,
    number,
    steps,
    rows,
    parameter,
    through_dropout,
    on_dropout,
    through_einsum,
    through_meshgrid,
]


@pytest.mark.parametrize("function", ONE_INPUT, ids=lambda function: function.__name__)
def test_writes_happen_in_the_order_of_the_model(compiled, function):  # noqa: F811
    """Everything that is returned, or written elsewhere, is what it was when it was read."""
    assert_eager(compiled(function, x()), x())


def test_inputs_can_change_places(compiled):  # noqa: F811
    """Two writes whose values are each other's destinations."""
    assert_eager(compiled(swap_inputs, x(), x() + 10), x(), x() + 10)


LISTS = {
    "broadcast_tensors": lambda h, x: torch.broadcast_tensors(h, x),
    "atleast_2d": lambda h, x: torch.atleast_2d([h, x]),
    "unsafe_chunk": lambda h, x: torch.unsafe_chunk(h, 1),
    "unsafe_chunk in two": lambda h, x: torch.unsafe_chunk(h, 2),
    "unsafe_split": lambda h, x: torch.unsafe_split(h, 2),
    "unsafe_split_with_sizes": lambda h, x: torch.unsafe_split_with_sizes(h, [2]),
    "meshgrid": lambda h, x: torch.meshgrid(h[0], indexing="ij"),
}


@pytest.mark.parametrize("parts", LISTS.values(), ids=LISTS.keys())
def test_a_list_whose_first_part_is_an_argument_is_a_list(compiled, parts):  # noqa: F811
    """Of which the parts are read, and the first is written through."""

    def reads(self, x):
        self.h.add_(1)
        return [part * 2 for part in parts(self.h, x)]

    def writes(self, x):
        first = parts(self.h, x)[0]
        first.mul_(2)
        return self.h + x

    for function in (reads, writes):
        assert_eager(compiled(function, x()), x())


@pytest.mark.parametrize("size", [1, 5])
def test_writes_through_undeclared_views_with_sizes_that_vary(compiled, size):  # noqa: F811
    """What cannot be known of symbolic sizes is taken to be a view."""

    def function(self, x):
        nn.functional.dropout(x, 0.5, False).add_(1)
        torch.einsum("ij->ji", x).mul_(2)
        return x * 1, x[:1].clone()

    shapes = {"inputs": ({0: torch.export.Dim("n", min=1, max=8)},)}
    assert_eager(compiled(function, torch.rand(4, 3), dynamic_shapes=shapes), torch.rand(size, 3))


# One memory under two names


class Tied(nn.Module):
    """A buffer, and another that shares its memory."""

    def __init__(self, view):
        super().__init__()
        self.register_buffer("h", torch.arange(6.0).reshape(2, 3))
        self.register_buffer("g", view(self.h))

    def forward(self, x):
        """Writes to one and reads the other."""
        self.h.add_(x)
        return self.g * 1


def test_a_buffer_under_two_names_is_one_buffer():
    """A write under one name is read under the other."""
    eager, source = (Tied(lambda h: h).eval() for _ in range(2))

    assert_eager((eager, source, torchtrt.compile(source, (x(),), min_block_size=1)), x())


def test_a_buffer_that_is_a_view_of_one_that_is_written_is_refused():
    """The error names both, and says what to do."""
    with pytest.raises(
        UnsupportedProgramError, match=r"'h', which shares memory with 'g'(.|\n)*Keep one"
    ):
        torchtrt.compile(Tied(lambda h: h[0]).eval(), (x(),))


def test_a_constant_that_is_written_is_refused():
    """A tensor that is no buffer has no state: the error says to register it."""

    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = torch.zeros(2, 3)

        def forward(self, x):
            return self.c.add_(x) * 1

    with pytest.raises(UnsupportedProgramError, match="Register the tensor as a buffer"):
        torchtrt.compile(Written().eval(), (x(),))


def test_a_write_to_repeated_elements_is_refused():
    """Several elements in one place cannot each have a value of their own."""
    with pytest.raises(UnsupportedProgramError, match=r"one place in memory(.|\n)*clone"):
        torchtrt.compile(
            Stateful(lambda self, x: (x[:1].expand(2, 3).zero_(), x * 1)).eval(), (x(),)
        )


def write_first(self, x, y):
    """Writes to one input and reads the other."""
    x.add_(1)
    return y * 1


@pytest.mark.parametrize(
    "pair",
    [lambda: [x()] * 2, lambda: (lambda memory: [memory[:2], memory[1:3]])(torch.rand(4, 3))],
    ids=["same", "overlapping"],
)
def test_an_input_that_is_written_and_given_twice_is_refused(compiled, pair):  # noqa: F811
    """The write would not be seen in the other; the error names both and says what to do."""
    _, _, module = compiled(write_first, x(), x() + 1)

    with pytest.raises(
        InputError, match=r"'inputs_0', which shares memory with input 'inputs_1'(.|\n)*clone"
    ):
        module(*pair())


def test_an_expanded_input_that_is_written_is_refused(compiled):  # noqa: F811
    """Its elements are one place in memory, as those of an expanded tensor inside the model."""
    _, _, module = compiled(write_first, x(), x() + 1)

    with pytest.raises(InputError, match=r"writes to input 'inputs_0', several(.|\n)*clone"):
        module(torch.rand(1, 3).expand(2, 3), x())


def test_a_buffer_that_is_written_and_given_is_refused(compiled):  # noqa: F811
    """So is the model's own buffer as an input."""

    def function(self, x):
        self.h.add_(1)
        return x * 1

    _, source, module = compiled(function, x())

    with pytest.raises(InputError, match=r"the model's 'h', which shares memory with input"):
        module(source.h)


@pytest.mark.parametrize(
    "halves",
    [
        lambda memory: (memory[:2, :3], memory[2:, :3]),
        lambda memory: (memory[:2, ::2], memory[:2, 1::2]),
    ],
    ids=["one after the other", "interleaved"],
)
def test_inputs_of_one_storage_that_do_not_overlap_are_two_inputs(compiled, halves):  # noqa: F811
    """Caches are often slices of one tensor."""
    eager, _, module = compiled(write_first, x(), x() + 1)
    ours, theirs = (torch.arange(24.0).reshape(4, 6) for _ in range(2))

    torch.testing.assert_close(module(*halves(ours)), eager(*halves(theirs)))
    torch.testing.assert_close(ours, theirs)


def test_a_tensor_given_twice_to_compile_stands_for_two_inputs(compiled):  # noqa: F811
    """Exporting would take the two for one: ``attention(x, x, x)`` is called with three tensors later."""
    assert_eager(compiled(lambda self, x, y: x - 2 * y, *[x()] * 2), x(), x() + 10)
    assert_eager(compiled(write_first, *[x()] * 2), x(), x() + 10)


def test_a_weight_given_to_compile_stands_for_an_input():
    """An example that is the model's own buffer is still an input."""
    eager, source = (Stateful(lambda self, x: x * 2 + self.h).eval() for _ in range(2))

    assert_eager((eager, source, torchtrt.compile(source, (source.h,), min_block_size=1)), x())


class Copying(nn.Module):
    """Copies another dtype or shape to all of a buffer, and reads that."""

    def __init__(self, source):
        super().__init__()
        self.source = source
        self.register_buffer("short", torch.rand(3, 4).half())
        self.register_buffer("whole", torch.zeros(3, 4))
        self.register_buffer("counts", torch.zeros(3, 4, dtype=torch.int64))

    def forward(self, x):
        destination, value = self.source(self, x)
        destination.copy_(value)
        return destination * 2, destination.amax(0), destination[:2]


@pytest.mark.parametrize(
    "source",
    [
        lambda self, x: (self.short, x),
        lambda self, x: (self.whole, self.short),
        lambda self, x: (self.counts, x * 3),
        lambda self, x: (self.whole, x[0]),
        lambda self, x: (self.whole.t(), x[:, :1].t()),
        lambda self, x: (self.short, x[1] * 3),
        lambda self, x: (x, self.counts[0]),
    ],
    ids=["rounded", "widened", "cut off", "row", "column", "rounded row", "input"],
)
@pytest.mark.parametrize("is_left", [False, True], ids=["in engines", "in PyTorch"])
def test_what_is_copied_to_a_whole_buffer_is_read_as_the_buffer_holds_it(source, is_left):
    """Cast to its dtype and expanded to its shape, in the program too and not only in memory."""
    torch.manual_seed(0)
    eager = Copying(source).eval()
    model = copy.deepcopy(eager)
    settings = left_in_pytorch(model, torch.rand(3, 4)) if is_left else {}
    module = torchtrt.compile(model, (torch.rand(3, 4),), min_block_size=1, **settings)

    assert_eager((eager, model, module), torch.rand(3, 4))


def test_a_batch_that_varies_is_copied_as_the_buffer_holds_it():
    """The rows that there are, expanded and cast."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(4, 3).half())

        def forward(self, x):
            self.state.copy_(x.sum(0))
            return self.state.sum() + x

    eager, model = Rows().eval(), Rows().eval()
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    settings = left_in_pytorch(model, torch.rand(2, 3), dynamic_shapes=shapes)
    module = torchtrt.compile(model, (torch.rand(2, 3),), dynamic_shapes=shapes, **settings)

    for size in (1, 2, 8):
        assert_eager((eager, model, module), torch.rand(size, 3))
