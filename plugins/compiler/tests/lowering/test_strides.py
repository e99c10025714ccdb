"""Ops that read memory by strides read the memory that eager PyTorch reads, whatever strides values have."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError, UnsupportedProgramError

OPTIONS = {"min_block_size": 1}
CASES = {
    "of a turned tensor": lambda x: (x * 2).t().as_strided((3,), (1,)),
    "of a copy that keeps strides": lambda x: (x * 2).t().clone().as_strided((3,), (1,)),
    "of what is computed of a turned tensor": lambda x: (x.t() * 2).as_strided((3,), (1,)),
    "of a slice, with the elements between": lambda x: (x * 2)[:, ::2].as_strided((2, 2), (4, 1)),
    "before a slice": lambda x: (x * 2)[1:].as_strided((2, 2), (4, 1), 0),
    "behind the start of a slice": lambda x: (x * 2)[1:].as_strided((2, 2), (4, 1)),
    "of an expanded tensor": lambda x: (x * 2)[:1].expand(3, 4).as_strided((3,), (1,)),
    "of an empty tensor like another": lambda x: (
        torch.empty_like(x.t()).copy_(x.t() * 2).as_strided((3,), (1,))
    ),
    "in a scatter": lambda x: (x.t() * 2).as_strided_scatter(torch.ones(3), (3,), (1,)),
}
FIXED = {
    "of a view in another dtype": lambda x: (x * 2).view(torch.int16).as_strided((3,), (3,), 1),
    "of real parts": lambda x: torch.view_as_real(torch.complex(x, x * 3).t() * 2).as_strided(
        (5,), (1,), 1
    ),
    "of conjugates": lambda x: torch.complex(x, x * 3).conj().as_strided((3,), (1,)).imag + 0,
    "of a copy that is made as small as another": lambda x: (x.t() * 2).resize_as_(
        torch.zeros(2, 2)
    ),
    "of what is resized out of place": lambda x: torch.ops.aten.resize(x.t() * 2, [2, 3]),
    "of what is resized out of place in another memory format": lambda x: torch.ops.aten.resize(
        x.reshape(1, 3, 2, 2) * 2, [1, 2, 2, 2], memory_format=torch.channels_last
    ),
    "of a copy that is made smaller": lambda x: (x.t() * 2).resize_(2, 2),
    "of channels last": lambda x: (
        (x.reshape(1, 2, 2, -1) * 2).to(memory_format=torch.channels_last).as_strided((3,), (1,))
    ),
    "on the diagonal of a slice": lambda x: (x * 2)[:, ::2].fill_diagonal_(7.0),
    "on the diagonal of all rows": lambda x: x.repeat(3, 1)[:, ::2].fill_diagonal_(7.0, wrap=True),
    "on the diagonal of integers": lambda x: x.to(torch.int32).fill_diagonal_(7.9),
    "on the diagonal of a cube": lambda x: (
        (x.sum() * torch.ones(3, 3, 3)).transpose(0, 1).clone().fill_diagonal_(7.0)
    ),
}


def written(x):
    """Writes to the first places in memory of a copy."""
    copy = (x * 2).t().clone()
    copy.as_strided((3,), (1,)).add_(1)
    return copy


@pytest.mark.parametrize("name", [*CASES, *FIXED])
def test_memory_is_read_as_when_it_was_exported(name):
    """An engine's results are contiguous, and lowering removes copies: neither changes what is read."""
    function = {**CASES, **FIXED}[name]
    x = torch.arange(12.0).reshape(3, 4)

    compiled = torchtrt.compile(Function(function).eval(), [x], **OPTIONS)

    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


@pytest.mark.parametrize("function", [*CASES.values(), written], ids=[*CASES, "written"])
def test_memory_of_varying_size_is_read_as_when_it_was_exported(function):
    """PyTorch runs these ops, between engines."""
    rows = torchtrt.Input(min_shape=(3, 4), opt_shape=(4, 4), max_shape=(8, 4))

    compiled = torchtrt.compile(Function(function).eval(), [rows], **OPTIONS)

    for count in (3, 5, 8):
        x = torch.arange(4.0 * count).reshape(count, 4)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


def test_pooling_of_a_copy_with_a_written_diagonal():
    """Found by the search of programs."""

    def function(x):
        copy = x.transpose(0, -1).chunk(2, 1)[0].clone().fill_diagonal_(0.5)
        return F.adaptive_avg_pool1d(copy.reshape(1, 1, -1), 2)

    x = torch.rand(5, 4)
    compiled = torchtrt.compile(Function(function).eval(), [x], **OPTIONS)

    torch.testing.assert_close(compiled(x), function(x))
    assert not compiled.report.in_torch


def test_memory_that_grows_is_refused():
    """Its new elements have no values."""

    def function(x):
        return (x * 2).resize_(5, 4)[:4]

    with pytest.raises(UnsupportedProgramError, match=r"makes mul larger with resize_ \(File"):
        torchtrt.compile(Function(function).eval(), [torch.rand(4, 4)], **OPTIONS)


def test_memory_with_gaps_that_the_program_does_not_know_is_refused():
    """A scatter returns its argument's places in memory, with what lies between them."""

    def function(x):
        return (x * 2)[:, ::2].as_strided_scatter(torch.ones(2), (2,), (2,))

    with pytest.raises(UnsupportedProgramError, match=r"reads the memory of slice_1 by strides"):
        torchtrt.compile(Function(function).eval(), [torch.rand(3, 4)], **OPTIONS)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.repeat(4, 1)[:, 1:].fill_diagonal_(7.0, wrap=True), "whose rows are not next"),
        (
            lambda x: (x.reshape(1, 3, 2, 2) * 2).resize_(
                1, 2, 2, 2, memory_format=torch.channels_last
            ),
            "another memory format",
        ),
    ],
    ids=["diagonal", "memory format"],
)
def test_writes_that_pytorch_does_by_strides_are_refused(function, message):
    """PyTorch's own functionalization writes elsewhere."""
    with pytest.raises(UnsupportedProgramError, match=message):
        torchtrt.compile(Function(function).eval(), [torch.rand(3, 4)], **OPTIONS)


class ReadsInput(nn.Module):
    """Reads the memory of its input, from the start of the storage."""

    def forward(self, x):
        return x.as_strided((2, 2), (1, 2), 0) * 2


class ReadsSum(nn.Module):
    """Reads the memory of a sum, which has the strides of the input."""

    def forward(self, x):
        return (x + 1).as_strided((2, 2), (1, 2), 0) * 2


class Resizes(nn.Module):
    """Resizes a sum, which has the strides of the input."""

    def forward(self, x):
        return (x + 1).resize_(2, 2)


class ResizesLike(nn.Module):
    """Resizes a sum like another tensor."""

    def forward(self, x):
        return (x + 1).resize_as_(torch.zeros(2, 2))


class Restrides(nn.Module):
    """Gives a sum other strides in place."""

    def forward(self, x):
        return (x + 1).as_strided_((2, 2), (1, 2)) * 2


class Asks(nn.Module):
    """Computes with a stride that Python reads, of a sum that has the strides of the input."""

    def forward(self, x):
        return x * (x + 1).stride(0)


class AsksWhether(nn.Module):
    """Takes a branch that depends on strides."""

    def forward(self, x):
        return x * 2 if x.is_contiguous() else x * 3


ROWS = torch.arange(12.0).reshape(3, 4)
COLUMNS = torch.arange(12.0).reshape(4, 3).t()


MODELS = {
    "input": ReadsInput(),
    "sum": ReadsSum(),
    "resized": Resizes(),
    "resized as": ResizesLike(),
    "in place": Restrides(),
    "in Python": Asks(),
    "in a condition": AsksWhether(),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("example", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_an_input_in_other_memory_is_refused(model, example, tmp_path):
    """Eager PyTorch reads other elements of it. A saved model refuses it, too."""
    compiled = torchtrt.compile(model.eval(), [example], min_block_size=1)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    others = [ROWS if example is COLUMNS else COLUMNS, torch.arange(24.0).reshape(3, 8)[:, ::2]]
    for module in (compiled, torchtrt.load(tmp_path / "model.pt2")):
        for other in others:
            torch.testing.assert_close(module(example), model(example))
            with pytest.raises(InputError, match="reads memory by strides"):
                module(other)


def test_only_a_model_that_reads_its_input_by_place_requires_the_place():
    """The memory of a sum is new, wherever the input is in its storage."""
    moved = torch.arange(40.0)[8:20].reshape(3, 4)
    compiled = torchtrt.compile(ReadsSum().eval(), [ROWS], min_block_size=1)
    torch.testing.assert_close(compiled(moved), ReadsSum()(moved))
    compiled = torchtrt.compile(ReadsInput().eval(), [ROWS], min_block_size=1)
    compiled(ROWS)
    with pytest.raises(InputError, match="storage offset 8"):
        compiled(moved)


def test_the_diagonal_of_an_input_in_other_memory_is_refused():
    """PyTorch fills places in memory below the second diagonal, also between the rows."""
    model = Function(lambda x: x.fill_diagonal_(7.0, wrap=True) * 1).eval()
    rows = torch.arange(20.0).reshape(10, 2)
    compiled = torchtrt.compile(model, [rows.clone()], min_block_size=1)
    torch.testing.assert_close(compiled(rows.clone()), model(rows.clone()))
    with pytest.raises(InputError, match="reads memory by strides"):
        compiled(torch.arange(60.0).reshape(10, 6)[:, :2])


@pytest.mark.parametrize("empty", [torch.rand(3, 0), torch.rand(4, 4)[:3, :0], torch.rand(2, 3, 0)])
def test_an_input_without_elements_has_no_gaps_in_memory(empty):
    """Whatever its strides are."""
    model = Function(lambda x, y: x.as_strided((2, 2), (1, 2)) + y.sum()).eval()
    compiled = torchtrt.compile(model, [ROWS, empty], min_block_size=1)
    torch.testing.assert_close(compiled(ROWS, empty), model(ROWS, empty))


class ReadsOffset(nn.Module):
    """Computes with the place of its input in memory."""

    def forward(self, x):
        return x + x.storage_offset()


def test_a_storage_offset_that_python_reads_holds_in_each_call():
    """An input at another place in its storage is refused, though its strides are those of the example."""
    x = torch.arange(12.0)
    compiled = torchtrt.compile(ReadsOffset().eval(), [x[4:8]], min_block_size=1)

    torch.testing.assert_close(compiled(x[4:8]), x[4:8] + 4)
    with pytest.raises(InputError, match="storage offset 4"):
        compiled(x[:4])


def test_strides_that_pytorchs_own_modules_read_restrict_no_input():
    """A convolution reads them, and computes the same values whatever they are."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    compiled = torchtrt.compile(model, [torch.rand(1, 3, 8, 8)], min_block_size=1)
    x = torch.rand(1, 3, 8, 8).to(memory_format=torch.channels_last)

    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize(
    "reads",
    [
        lambda x: x.dim_order() == (0, 1),
        lambda x: torch.ops.aten.is_contiguous.default(x),
        lambda x: torch.ops.aten.sym_stride(x)[0] == 3,
    ],
    ids=["a function in Python", "an overload", "an op"],
)
def test_strides_that_python_reads_through_other_functions_are_checked(reads):
    """PyTorch calls its modes from functions of its own."""
    model = Function(lambda x: x * 2 if reads(x) else x * 3).eval()

    compiled = torchtrt.compile(model, [torch.rand(3, 3)], **OPTIONS)

    with pytest.raises(InputError, match="memory"):
        compiled(torch.rand(3, 3).t())


@pytest.mark.parametrize(
    "reads",
    [
        lambda x: x._base is None,
        lambda x: x._is_view(),
        lambda x: x.untyped_storage().nbytes() == 36,
        lambda x: x.storage().size() == 9,
        lambda x: x.is_set_to(x[:]),
    ],
    ids=["_base", "_is_view", "untyped_storage", "storage", "is_set_to"],
)
def test_a_model_whose_python_asks_for_memory_is_refused(reads):
    """No check of an input determines the result."""
    model = Function(lambda x: x * 2 if reads(x) else x * 3).eval()

    with pytest.raises(UnsupportedProgramError, match="which memory a tensor has"):
        torchtrt.compile(model, [torch.rand(3, 3)], **OPTIONS)


def test_an_expression_that_pytorch_evaluates_asks_for_no_memory():
    """Dynamo evaluates guards where a model with branches ran before it is compiled."""
    names = {"__name__": "torch.guards"}
    exec("def is_base(x): return eval('x._base is None', {'x': x})", names)
    model = Function(lambda x: x * 2 if names["is_base"](x) else x * 3).eval()

    torchtrt.compile(model, [torch.rand(3, 3)], **OPTIONS)


def writes_through_reshape(x):
    """Writes to the input where its memory has the order of its dimensions."""
    x.reshape(-1)[0] = 9
    return x * 1


def writes_before_reshape_is_read(x):
    """Returns what was read before the write, or after it."""
    copy = x * 2
    flat = copy.flatten()
    copy.add_(1)
    return flat * 1


def writes_through_contiguous(x):
    """Exporting a contiguous example leaves no trace of the copy."""
    copy = x.contiguous()
    return copy.relu_() + x


def writes_to_a_result_through_contiguous(x):
    """The strides of a result are those of the input."""
    result = x.abs()
    copy = result.contiguous()
    copy += 1
    return result * copy


def writes_in_a_branch(x):
    """The strides inside a branch are those of the input, too."""

    def branch(x):
        copy = x * 2
        copy.reshape(-1)[0] = x.sum()
        return copy + 1

    return torch.cond(x.sum() > 0, branch, torch.sin, (x,))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        writes_in_a_branch,
        writes_through_reshape,
        writes_before_reshape_is_read,
        writes_through_contiguous,
        writes_to_a_result_through_contiguous,
    ],
)
def test_a_write_that_strides_determine_requires_those_of_the_example(function, turned):
    """The same write changes the input for some strides, and a copy for others."""
    rows = torch.arange(12.0).sub(6).reshape(3, 4)
    columns = torch.arange(12.0).sub(6).reshape(4, 3).t()
    example, other = (columns, rows) if turned else (rows, columns)
    compiled = torchtrt.compile(Function(function).eval(), [example.clone()], **OPTIONS)

    ours, theirs = example.clone(), example.clone()
    torch.testing.assert_close(compiled(ours), function(theirs))
    torch.testing.assert_close(ours, theirs)
    with pytest.raises(InputError, match=r"write through x\.reshape"):
        compiled(other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).flatten().relu_(),
        lambda x: (x.add_(1), x.reshape(-1) * 2),
        lambda x: (x * 1).reshape(-1).add_(1) + (x.reshape(-1) * 2),
        lambda x: (x.add_(1), (x * 2).contiguous() + 1),
        lambda x: (x.half(memory_format=torch.contiguous_format).add_(1), x * 1),
        lambda x: (x.to(x.dtype, memory_format=torch.preserve_format).add_(1), x * 1),
    ],
    ids=[
        "its source is read no more",
        "written before",
        "written is new",
        "written is another",
        "written has another dtype",
        "written is the input",
    ],
)
def test_a_write_that_nothing_else_reads_takes_any_strides(function):
    """A view or a copy has the same values then."""
    compiled = torchtrt.compile(Function(function).eval(), [torch.rand(3, 4)], **OPTIONS)

    for x in (torch.rand(3, 4), torch.rand(4, 3).t()):
        ours, theirs = x.clone(), x.clone()
        torch.testing.assert_close(compiled(ours), function(theirs))
        torch.testing.assert_close(ours, theirs)
