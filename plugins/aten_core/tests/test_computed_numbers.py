"""Padding, writes and ranges by numbers that a model computes from its sizes: layers of the engine."""

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from tests.support.modules import Function

SHAPES = ((2, 5, 6), (2, 7, 9), (3, 12, 16), (2, 6, 8), (3, 8, 7))
X = torchtrt.Input(min_shape=SHAPES[0], opt_shape=SHAPES[1], max_shape=SHAPES[2])


def rest(x, dim=-1):
    """Returns how much a size is below a multiple of four."""
    return -x.shape[dim] % 4


def mixed(x):
    """Returns elements added at one end and taken away at the other, or the reverse."""
    return F.pad(x, (x.shape[2] - 7, 7 - x.shape[2]))


PADDING = {
    "multiple": lambda x: F.pad(x, (0, rest(x))),
    "both-sides": lambda x: F.pad(x, (rest(x) // 2, rest(x) - rest(x) // 2), value=1.5),
    "two-dimensions": lambda x: F.pad(x[None], (0, rest(x), 0, rest(x, 1))),
    "away": lambda x: F.pad(x, (0, -(x.shape[2] % 4))),
    "mixed": mixed,
    "by-another-size": lambda x: F.pad(x, (0, x.shape[1], 0, 0)),
    "whole": lambda x: F.pad(x.long(), (rest(x), x.shape[2] - 7), value=3),
    "whole-two-dimensions": lambda x: F.pad(x.long(), (0, rest(x), rest(x, 1), 2), value=-1),
    "booleans": lambda x: F.pad(x > 0, (0, rest(x)), value=True),
    "half": lambda x: F.pad(x.half(), (0, rest(x)), value=-1),
    "infinite": lambda x: F.pad(x, (0, rest(x)), value=float("-inf")),
    "reflected": lambda x: F.pad(x, (0, rest(x)), mode="reflect"),
    "replicated": lambda x: F.pad(x[None], (0, rest(x), 0, rest(x, 1)), mode="replicate"),
    "circular": lambda x: torch.ops.aten._pad_circular.default(x, [1, x.shape[2] // 2]),
    "there-and-back": lambda x: F.pad(
        F.pad(x, (0, rest(x))).unflatten(-1, (-1, 4)).flip(-1).flatten(-2), (0, -rest(x))
    ),
}


def written(start, end, values, step=1):
    """Returns a model that writes to a part of the second dimension."""

    def write(x):
        result = x * 2
        result[:, start(x) : end(x) : step] = values(x)
        return result

    return write


def nothing(_):
    return None


WRITES = {
    "last": written(lambda x: -(x.shape[1] // 2), nothing, lambda x: x[:, : x.shape[1] // 2]),
    "middle": written(lambda x: -2 - x.shape[1] // 3, lambda x: -(x.shape[1] // 3), lambda _: 7.0),
    "number": written(lambda x: 3 - x.shape[1], nothing, lambda _: 5.0),
    "to-the-last": written(
        nothing, lambda x: -(x.shape[1] // 2), lambda x: x[:, x.shape[1] // 2 :]
    ),
    "second-half": written(lambda x: x.shape[1] // 2, nothing, lambda _: 2.0),
}
RANGES = {
    "start": lambda x: torch.arange(0.5, x.shape[2]) + x[0, 0],
    "step": lambda x: torch.arange(0.25, x.shape[2], 0.5) + x.sum(),
    "down": lambda x: torch.arange(x.shape[2], -0.75, -0.25) + x.sum(),
    "end": lambda x: torch.arange(x.shape[1], 20.5, 1.25) + x.sum(),
    "half": lambda x: torch.arange(0.5, x.shape[2], 1.5, dtype=torch.float16) * 2,
    "fixed-length": lambda x: torch.arange(x.shape[1], x.shape[1] + 2, 0.5) + x.sum(),
}
EMPTY = {
    "parameter": lambda x: torch.cat(
        [torch.zeros(1, 0, 1).expand(x.shape[0], 0, x.shape[2]), x], 1
    ),
    "as-another": lambda x: torch.cat([torch.zeros(1, 0, 1).expand_as(x[:, :0]), x], 1),
    "result": lambda x: torch.zeros(1, 0, 1).expand(x.shape[0], 0, x.shape[2]) + 0,
    "sum": lambda x: x.sum() + torch.zeros(1, 0).expand(x.shape[0], 0).sum(1),
}
MODELS = {
    f"{kind}-{name}": function
    for kind, functions in {
        "pad": PADDING,
        "write": WRITES,
        "range": RANGES,
        "empty": EMPTY,
    }.items()
    for name, function in functions.items()
}


@pytest.mark.parametrize("name", MODELS)
def test_numbers_that_a_model_computes_stay_in_the_engine(name, version):
    """The ops around them are in one engine."""
    function = MODELS[name]
    compiled = torchtrt.compile(Function(function).eval(), [X], require_full_compilation=True)

    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)


OUTSIDE = {
    "range-tenths": (
        lambda x: torch.arange(0, x.shape[2], 0.1) + x.sum(),
        "a step of few digits",
    ),
    "range-whole": (
        lambda x: torch.arange(0.5, x.shape[2], dtype=torch.int64) + x[0, 0, 0].long(),
        "must have whole bounds",
    ),
    "range-step": (
        lambda x: torch.arange(0, 64, x.shape[2]) + x.sum(),
        "must have a fixed step",
    ),
    "range-quotient": (
        lambda x: torch.arange(0, x.shape[2] / 2, 0.5) + x.sum(),
        "must be numbers or sizes",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_numbers_that_an_engine_would_round_stay_in_pytorch(name, version):
    """With the rule."""
    function, reason = OUTSIDE[name]
    compiled = torchtrt.compile(Function(function).eval(), [X], min_block_size=1)

    assert reason in compiled.report.in_torch[0].reason
    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)


def filled(x):
    """Returns eight rows, of which the first are those that data chooses."""
    chosen = x[x[:, 0] > 0]
    result = torch.zeros(8, 4)
    result[: chosen.shape[0]] = chosen
    return result


def test_rows_that_data_chooses_are_written_be_there_any_or_none(version):
    """Of no rows, none can be read."""
    rows = torch.randn(6, 4)
    compiled = torchtrt.compile(Function(filled).eval(), [rows], min_block_size=1)

    for x in (rows, rows.abs(), -rows.abs()):
        torch.testing.assert_close(compiled(x), filled(x))
