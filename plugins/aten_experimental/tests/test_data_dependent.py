"""Outputs whose size depends on the data come out at their own size."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.modules import Function
from tests.support.versions import since
from torchtrt.testing import run_compiled, tensorrts


class Positions(nn.Module):
    """Where a tensor is positive."""

    def forward(self, x):
        """Returns the indices, and arithmetic on them."""
        return torch.nonzero(torch.relu(x)) * 2 + 1


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("positive", [0, 1, 5, 12])
def test_nonzero_has_as_many_rows_as_there_are(tensorrt, positive):
    """From none to all, int64, in row-major order."""
    x = -torch.ones(3, 4)
    x.view(-1)[:positive] = 1.0
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(
            Positions().eval(), (torch.rand(3, 4),), require_full_compilation=True
        )

    torch.testing.assert_close(run_compiled(compiled, x), Positions()(x))


MASKED = [
    ("vector", lambda x, m: x[m]),
    ("rows", lambda x, m: x[m[:, 0]]),
    ("columns", lambda x, m: x[:, m[0]]),
    ("beside an index", lambda x, m: x[m[:, 0], 1]),
    ("beside indices", lambda x, m: x.reshape(3, 2, 2)[m[:, 0], :, 0]),
    ("arithmetic after", lambda x, m: x[m] * 2 + 1),
    ("select", torch.masked_select),
    ("select broadcast", lambda x, m: torch.masked_select(x, m[0])),
    ("select broadcast tensor", lambda x, m: torch.masked_select(x[:, :1], m)),
]


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("function", [row[1] for row in MASKED], ids=[row[0] for row in MASKED])
def test_masks_choose_as_many_as_they_hold(function, tensorrt):
    """None, some and all: the result has PyTorch's values and size."""
    x = torch.randn(3, 4)
    some = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0]]).bool()
    model = Function(function).eval()
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(
            model, (x, some), require_full_compilation=True, min_block_size=1
        )
    for mask in (some, torch.ones_like(some), torch.zeros_like(some)):
        torch.testing.assert_close(run_compiled(compiled, x, mask), model(x, mask))


_WITH_INDICES = since("2.13", "traces indices and counts with the dtype of the elements")
DTYPES_OF_UNIQUE = [
    pytest.param(torch.float32, marks=_WITH_INDICES),
    torch.int64,
    pytest.param(torch.bool, marks=_WITH_INDICES),
]
UNIQUE = {
    "sorted": lambda x: torch.unique(x),
    "inverse": lambda x: torch.unique(x, return_inverse=True),
    "all": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
}


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("label", UNIQUE)
@pytest.mark.parametrize("dtype", DTYPES_OF_UNIQUE)
def test_unique_elements_are_as_many_as_there_are(label, dtype, tensorrt):
    """One, some and all different, of any shape."""
    model = Function(UNIQUE[label]).eval()
    inputs = [
        torch.tensor([[3, 1, 1, 2], [2, 2, 0, 3]]),
        torch.ones(2, 4),
        torch.arange(8).reshape(2, 4).flip(0),
    ]
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(
            model, (inputs[0].to(dtype),), require_full_compilation=True, min_block_size=1
        )
    for x in inputs:
        torch.testing.assert_close(run_compiled(compiled, x.to(dtype)), model(x.to(dtype)))


WRITES = [
    ("twice", lambda y: y[y > 1] * 2),
    ("rows", lambda y: y[y > 1].flip(0)),
]


@pytest.mark.parametrize("tensorrt", ["reference@10.16.1", "reference@11.4.0"])
@pytest.mark.parametrize("values", [row[1] for row in WRITES], ids=[row[0] for row in WRITES])
def test_what_a_mask_chose_is_written_back(values, tensorrt):
    """None, some and all of the elements."""

    def function(x):
        y = x.clone()
        y[y > 1] = values(y)
        return y

    model, inputs = Function(function).eval(), (torch.arange(6.0).reshape(2, 3),)
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, inputs, require_full_compilation=True)

    for x in (*inputs, torch.zeros(2, 3), torch.full((2, 3), 5.0)):
        torch.testing.assert_close(run_compiled(compiled, x), model(x))


SIZES_OF_WHAT_IS_CHOSEN = [
    ("sum", lambda y: y.sum()),
    ("whole sum", lambda y: y.to(torch.int32).sum()),
    ("mean", lambda y: y.mean()),
    ("variance", lambda y: y.var()),
    ("running sum", lambda y: y.cumsum(0)),
    ("turned around", lambda y: y.flip(0)),
    ("padded", lambda y: torch.nn.functional.pad(y, (1, 1))),
    ("size", lambda y: y + torch.arange(y.shape[0])),
]


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize(
    "function",
    [row[1] for row in SIZES_OF_WHAT_IS_CHOSEN],
    ids=[row[0] for row in SIZES_OF_WHAT_IS_CHOSEN],
)
def test_what_needs_a_size_that_depends_on_data_has_pytorchs_values(function, tensorrt):
    """In the engine, or in PyTorch where this TensorRT returns no such size."""
    model = Function(lambda x: function(x[x > 1])).eval()
    x = torch.tensor([[0.5, 1.5, 2.5], [3.0, -1.0, 7.0]])
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(
            model, (x,), require_full_compilation=tensorrt != "reference@8.6.0", min_block_size=1
        )

    torch.testing.assert_close(run_compiled(compiled, x), model(x))


def test_results_of_two_calls_do_not_share_memory():
    """The first result is unchanged by the second call."""
    compiled = torchtrt.compile(
        Positions().eval(), (torch.rand(3, 4),), require_full_compilation=True
    )

    first = run_compiled(compiled, torch.ones(3, 4))
    kept = first.clone()
    run_compiled(compiled, -torch.ones(3, 4))

    torch.testing.assert_close(first, kept)


ROWS = torch.tensor([[2, 1, 1], [0, 5, 0], [2, 1, 1], [2, 0, 9], [0, 5, 0], [2, 1, 2]])


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("dtype", DTYPES_OF_UNIQUE)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive])
def test_unique_slices_are_in_the_order_of_their_first_difference(function, dim, dtype, tensorrt):
    """As many as there are, with what each was and how often it occurs."""

    def unique(x):
        return function(x, return_inverse=True, return_counts=True, dim=dim)

    inputs = tuple(
        rows.to(dtype) for rows in (ROWS, ROWS[:, :1].expand(6, 3), ROWS.sort(0)[0].unsqueeze(2))
    )
    for x in inputs:
        model = Function(unique).eval()
        with torchtrt.use_tensorrt(tensorrt):
            compiled = torchtrt.compile(model, (x,), require_full_compilation=True)
        torch.testing.assert_close(run_compiled(compiled, x), model(x))


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_a_scalar_is_chosen_or_not(tensorrt):
    """A mask of no dimensions chooses one element or none."""
    model = Function(torch.masked_select).eval()
    inputs = (torch.tensor(2.5), torch.tensor(True))
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, inputs, require_full_compilation=True)

    for mask in (True, False):
        operands = (inputs[0], torch.tensor(mask))
        torch.testing.assert_close(run_compiled(compiled, *operands), model(*operands))


OF_BYTES = {
    "unique": lambda x: torch.unique(x),
    "consecutive": lambda x: torch.unique_consecutive(x),
    "slices": lambda x: torch.unique(x, dim=0),
    "mask": lambda x: x[x > 1],
    "select": lambda x: torch.masked_select(x, x > 1),
    "nonzero": lambda x: torch.nonzero(x),
}


@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
@pytest.mark.parametrize("function", OF_BYTES.values(), ids=OF_BYTES)
def test_bytes_that_tensorrt_does_not_move_stay_in_pytorch(function, dtype, tensorrt):
    """Or they are cast first, where a cast is all that is missing."""
    x = torch.tensor([[3, 1], [0, 3], [3, 1]]).to(dtype)
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(Function(function).eval(), (x,), min_block_size=1)
        assert torch.equal(run_compiled(compiled, x), function(x))
