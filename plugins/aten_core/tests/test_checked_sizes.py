"""Sizes that an op's kernel refuses in eager PyTorch, although exporting takes them."""

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError, SizeWarning

PLACES = torch.tensor([0, 2])


def between(least, opt, most, dtype=torch.float32):
    return torchtrt.Input(min_shape=least, opt_shape=opt, max_shape=most, dtype=dtype)


def one(*shape):
    return torch.rand(shape)


CASES = {
    "a slice": (
        lambda x, y: torch.slice_scatter(x, y, 0, 1, 4),
        (one(6), between((2,), (3,), (5,))),
        (one(6), one(3)),
        (one(6), one(5)),
    ),
    "a slice with steps from the end": (
        lambda x, y: torch.slice_scatter(x, y, 0, -3, None, 2),
        (between((2,), (5,), (6,)), between((1,), (2,), (3,))),
        (one(2), one(1)),
        (one(5), one(1)),
    ),
    "a slice with a step that is a size": (
        lambda x, y: torch.slice_scatter(x, y, 0, 0, None, x.shape[0]),
        (between((2,), (4,), (6,)), between((1,), (1,), (2,))),
        (one(5), one(1)),
        (one(5), one(2)),
    ),
    "a chosen row": (
        lambda x, y: torch.select_scatter(x, y, 0, 1),
        (one(2, 4), between((3,), (4,), (5,))),
        (one(2, 4), one(4)),
        (one(2, 4), one(3)),
    ),
    "the place of a row": (
        lambda x, y: torch.select_scatter(x, y, 0, 2),
        (between((1, 4), (3, 4), (5, 4)), one(4)),
        (one(4, 4), one(4)),
        (one(2, 4), one(4)),
    ),
    "a diagonal": (
        lambda x, y: torch.diagonal_scatter(x, y, 1),
        (between((4, 4), (5, 5), (6, 6)), between((3,), (4,), (5,))),
        (one(4, 5), one(4)),
        (one(5, 5), one(3)),
    ),
    "added rows": (
        lambda x, y: x.index_add(0, PLACES, y),
        (one(3, 3), between((2, 2), (2, 3), (2, 4))),
        (one(3, 3), one(2, 3)),
        (one(3, 3), one(2, 2)),
    ),
    "the number of reduced rows": (
        lambda x, y: x.index_reduce(0, PLACES, y, "amax"),
        (one(3, 3), between((1, 3), (2, 3), (3, 3))),
        (one(3, 3), one(2, 3)),
        (one(3, 3), one(1, 3)),
    ),
    "values": (
        lambda x, y: x.index_put((PLACES,), y, True),
        (one(5, 6), between((1, 5), (2, 6), (2, 6))),
        (one(5, 6), one(1, 6)),
        (one(5, 6), one(2, 5)),
    ),
    "values for any number of places": (
        lambda x, y, indices: x.index_put((indices,), y),
        (one(5, 6), between((1, 6), (2, 6), (3, 6)), between((1,), (2,), (3,), torch.int64)),
        (one(5, 6), one(1, 6), torch.arange(3)),
        (one(5, 6), one(2, 6), torch.arange(3)),
    ),
    "a mask": (
        lambda x, mask: x.index_put((mask,), torch.ones(())),
        (one(5, 6), between((3,), (5,), (6,), torch.bool)),
        (one(5, 6), one(5) > 0.5),
        (one(5, 6), one(4) > 0.5),
    ),
    "an image without places": (
        lambda x: F.interpolate(x, scale_factor=0.4, mode="bicubic"),
        (between((1, 1, 1, 1), (1, 1, 5, 5), (1, 1, 8, 8)),),
        (one(1, 1, 3, 3),),
        (one(1, 1, 2, 2),),
    ),
    "a size of an input": (
        lambda x: F.interpolate(torch.ones(1, 1, 4), size=x.shape[0], mode="linear") + x.sum(),
        (between((0,), (3,), (4,)),),
        (one(2),),
        (one(0),),
    ),
    "statistics of nothing": (
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0],
        (between((0, 3), (3, 3), (4, 3)),),
        (one(2, 3),),
        (one(0, 3),),
    ),
}


@pytest.mark.each_tensorrt
@pytest.mark.filterwarnings("ignore:You asked for", "ignore:index_reduce", "ignore:No engine")
@pytest.mark.parametrize(("function", "inputs", "taken", "refused"), CASES.values(), ids=CASES)
def test_a_call_that_eager_pytorch_refuses_for_its_sizes_is_refused(
    function, inputs, taken, refused
):
    """Fake kernels do not check these sizes, nor does an engine: it would compute something."""
    compiled = torchtrt.compile(Function(function).eval(), inputs, min_block_size=1)

    torch.testing.assert_close(compiled(*taken), function(*taken))
    with pytest.raises((RuntimeError, IndexError)):
        function(*refused)
    with pytest.raises(InputError):
        compiled(*refused)


@pytest.mark.filterwarnings("ignore:No engine")
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.slice_scatter(x, y, 0, 1, 4), (one(6), one(5))),
        (lambda x, y: x.index_put((PLACES,), y), (one(5, 6), one(2, 5))),
    ],
    ids=["a slice", "values"],
)
def test_fixed_sizes_that_do_not_fit_are_left_to_the_error_of_pytorch(function, inputs):
    """The message is that of the model itself."""
    compiled = torchtrt.compile(Function(function).eval(), inputs, min_block_size=1)

    with pytest.raises(RuntimeError) as eager:
        function(*inputs)
    with pytest.raises(RuntimeError) as error:
        compiled(*inputs)
    assert str(eager.value) in str(error.value)


@pytest.mark.filterwarnings("ignore:No engine")
def test_a_branch_checks_its_sizes_only_where_it_runs():
    """A condition of the program would be one of all calls."""

    def branches(x, y):
        return torch.cond(
            x.sum() > 0,
            lambda x, y: torch.index_put(x, (torch.tensor([0, 1]),), y),
            lambda x, y: x + y.sum(),
            (x, y),
        )

    inputs = (between((2, 2), (3, 2), (4, 2)), between((1, 2), (2, 2), (3, 2)))
    model = Function(branches).eval()
    compiled = torchtrt.compile(model, inputs, min_block_size=1)

    for x, y in [(one(3, 2), one(2, 2)), (-one(3, 2), one(3, 2))]:
        torch.testing.assert_close(compiled(x, y), model(x, y))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        compiled(one(3, 2) + 1, one(3, 2))


def test_a_program_that_the_user_exported_has_the_same_conditions():
    """They come from the ops of the program, not from exporting."""
    rows = torch.export.Dim("rows", min=2, max=8)
    model = Function(lambda x, y: torch.slice_scatter(x, y, 0, 1)).eval()
    shapes = (({0: rows}, {0: torch.export.Dim("others", min=2, max=8)}),)
    program = torch.export.export(model, (one(5), one(4)), dynamic_shapes=shapes)
    with pytest.warns(UserWarning, match="You asked for"):
        compiled = torchtrt.compile(program, min_block_size=1)

    torch.testing.assert_close(compiled(one(4), torch.ones(3))[1:], torch.ones(3))
    with pytest.raises(InputError):
        compiled(one(4), one(4))


def test_sizes_that_ops_refuse_are_said_to_be_refused_by_the_model():
    """Eager PyTorch refuses them, too."""
    rows = torchtrt.Input(min_shape=(2,), opt_shape=(4,), max_shape=(6,))
    model = Function(lambda x, value: torch.select_scatter(x, value, 0, 2) * 2).eval()
    with pytest.warns(SizeWarning, match="the model itself refuses"):
        compiled = torchtrt.compile(model, [rows, torch.tensor(1.0)], min_block_size=1)

    (row,) = compiled.report.narrowed
    assert row.is_refused
    assert (3, 6) == row.compiled
