"""Rotary position embeddings are one layer where TensorRT has it, and the same numbers."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import NoEngineWarning
from torchtrt_converters_aten_experimental.converters.rotary_embedding import rotary_embedding

OP = "torchtrt_experimental.rotary_embedding.default"
WIDTH = 8


def halves(x):
    """Rotates the halves of the features, as transformers does."""
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def chunks(x):
    """The same written with ``chunk``."""
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def neighbors(x):
    """Rotates neighbors, as diffusers does."""
    first, second = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack([-second, first], dim=-1).flatten(3)


def strided(x):
    """The same with strides, as GPT-J does."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def angles(x, interleaved, start=0):
    """Returns the angle of each position and feature, each twice."""
    frequencies = 1 / 100 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    once = torch.outer(torch.arange(start, start + x.shape[-2]).float(), frequencies)
    return once.repeat_interleave(2, -1) if interleaved else torch.cat((once, once), -1)


class Rotary(nn.Module):
    """A rotary embedding between two other functions."""

    def __init__(self, rotate, interleaved, form="matrix"):
        super().__init__()
        self.rotate, self.interleaved, self.form = rotate, interleaved, form

    def forward(self, x):
        """Returns rotated features."""
        x = x * 2
        turn = angles(x, self.interleaved)
        cos, sin = turn.cos().to(x.dtype), (turn.sin() * 1.5).to(x.dtype)
        if self.form == "heads":
            cos, sin = cos[None, None], sin[None, None]
        if self.form == "turned":
            return (sin * self.rotate(x) + cos * x).relu()
        return (x * cos + self.rotate(x) * sin).relu()


ROTATIONS = {
    "halves": (halves, False),
    "chunks": (chunks, False),
    "neighbors": (neighbors, True),
    "strided": (strided, True),
}


def features(batch=2, length=5, dtype=torch.float32):
    """Returns features of three heads."""
    torch.manual_seed(0)
    return torch.randn(batch, 3, length, WIDTH, dtype=dtype)


def ops_of(compiled):
    """Returns the ops that became layers."""
    return {row.op: row.count for row in compiled.report.converted}


@pytest.mark.parametrize("version", ["8.6.0", "10.16.1", "11.4.0"])
@pytest.mark.parametrize("form", ["matrix", "heads", "turned"])
@pytest.mark.parametrize(("rotate", "interleaved"), ROTATIONS.values(), ids=ROTATIONS)
def test_a_rotary_embedding_is_one_layer(version, rotate, interleaved, form):
    """For sizes that vary; TensorRT 8.6 has no such layer and computes the formula."""
    model = Rotary(rotate, interleaved, form).eval()
    sizes = {name: torch.export.Dim(name, min=1, max=9) for name in ("batch", "length")}
    shapes = ({0: sizes["batch"], 2: sizes["length"]},)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(
            model, [features()], dynamic_shapes=shapes, require_full_compilation=True
        )

    assert ops_of(compiled).get(OP, 0) == (version != "8.6.0")
    for batch, length in ((1, 1), (2, 5), (9, 9), (1, 9)):
        x = features(batch, length)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rotate", "interleaved"), ROTATIONS.values(), ids=ROTATIONS)
def test_half_precision(rotate, interleaved, dtype):
    """One layer there, too."""
    model, x = Rotary(rotate, interleaved).eval(), features(dtype=dtype)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    assert 1 == ops_of(compiled)[OP]
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-2, atol=2e-2)


class HeadsLast(nn.Module):
    """Positions before heads, as diffusers has them, and angles of two axes in a row."""

    def __init__(self, rotate, interleaved):
        super().__init__()
        self.rotate, self.interleaved = rotate, interleaved

    def forward(self, x):
        """Returns rotated features, ``(batch, length, heads, width)``."""
        turn = angles(x.transpose(1, 2), self.interleaved)
        if self.interleaved:
            half = turn[:, : WIDTH // 2 : 2]
            turn = torch.cat([part.repeat_interleave(2, 1) for part in (half, half * 2)], -1)
        cos, sin = (part[None, :, None, :].to(x.dtype) for part in (turn.cos(), turn.sin()))
        return x * cos + self.rotate(x) * sin


@pytest.mark.parametrize(("rotate", "interleaved"), ROTATIONS.values(), ids=ROTATIONS)
def test_heads_may_follow_positions(rotate, interleaved):
    """The layer takes the features transposed; sizes vary."""
    model, x = HeadsLast(rotate, interleaved).eval(), features().transpose(1, 2).contiguous()
    sizes = {name: torch.export.Dim(name, min=1, max=9) for name in ("batch", "length")}

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(
            model,
            [x],
            dynamic_shapes=({0: sizes["batch"], 1: sizes["length"]},),
            require_full_compilation=True,
        )

    assert 1 == ops_of(compiled)[OP]
    for batch, length in ((1, 1), (2, 5), (9, 9), (3, 1)):
        x = features(batch, length).transpose(1, 2).contiguous()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_as_many_heads_as_positions_are_no_confusion():
    """Only the angles show which dimension is which."""
    x = features(2, 3)  # three heads
    for model, example in (
        (Rotary(*ROTATIONS["halves"]), x),
        (HeadsLast(*ROTATIONS["halves"]), x.transpose(1, 2).contiguous()),
    ):
        with torchtrt.use_tensorrt("reference@11.4.0"):
            compiled = torchtrt.compile(model.eval(), [example], require_full_compilation=True)

        assert 1 == ops_of(compiled)[OP]
        torch.testing.assert_close(compiled(example), model(example), rtol=1e-5, atol=1e-5)


def test_layers_share_their_angles():
    """Two rotations by one pair of cosines and sines slice each once."""

    def function(x):
        turn = angles(x, interleaved=False)
        cos, sin = turn.cos(), turn.sin()
        return tuple(y * cos + halves(y) * sin for y in (x * 2, x * 3, x * 4))

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(
            Function(function).eval(),
            [features()],
            dynamic_shapes=(({2: torch.export.Dim("length", min=1, max=9)},),),
            require_full_compilation=True,
        )

    assert 3 == ops_of(compiled)[OP]
    assert 2 == ops_of(compiled)["aten.slice.Tensor"]


def by_features(x):
    """Each feature has its own angle, so a pair has two."""
    turn = torch.arange(WIDTH).float()
    return x * turn.cos() + halves(x) * turn.sin()


OTHERS = {
    "own angles": by_features,
    "of another tensor": lambda x: (
        x * angles(x, False).cos() + halves(x + 1) * angles(x, False).sin()
    ),
    "other pairs": lambda x: x * angles(x, True).cos() + halves(x) * angles(x, True).sin(),
    "difference": lambda x: x * angles(x, False).cos() - halves(x) * angles(x, False).sin(),
    "not negated": lambda x: x * angles(x, False).cos() + x.roll(4, -1) * angles(x, False).sin(),
    "alpha": lambda x: torch.add(
        x * angles(x, False).cos(), halves(x) * angles(x, False).sin(), alpha=2
    ),
    "other halves": lambda x: (
        x * angles(x, False).cos()
        + torch.cat((-x[..., 3:7], x[..., :4]), -1) * angles(x, False).sin()
    ),
    "swapped halves": lambda x: (
        x * angles(x, False).cos()
        + torch.cat((-x[..., :4], x[..., 4:]), -1) * angles(x, False).sin()
    ),
    "angles of heads and positions": lambda x: (
        x * (angles(x, False) + torch.arange(3.0)[:, None, None]).cos()
        + halves(x) * angles(x, False).sin()
    ),
}


def rounded(x):
    """Rotates features of less precision than those that it multiplies with cosines."""
    turn = angles(x, False)
    return x * turn.cos() + halves(x.half()).float() * turn.sin()


def broadcast(x):
    """Cosines of three sequences for one sequence of features."""
    turn = angles(x, False).expand(3, 1, -1, -1) + torch.arange(3.0).reshape(3, 1, 1, 1)
    return x[:1] * turn.cos() + halves(x[:1]) * turn.sin()


def several_positions(x):
    """Cosines of all positions for the features of the first."""
    turn = angles(x, False)
    return x[:, :, :1] * turn.cos() + halves(x[:, :, :1]) * turn.sin()


OTHERS |= {"rounded": rounded, "broadcast": broadcast, "several positions": several_positions}


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_what_only_looks_like_it_stays(function):
    """The result is the formula's."""
    model, x = Function(function).eval(), features()

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert OP not in ops_of(compiled)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


class Gamma(torch.nn.Module):
    """An op without a converter."""

    def forward(self, x):
        return torch.igamma(x.abs() + 1, x.abs())


@pytest.mark.parametrize("interleaved", [False, True])
def test_its_decomposition_is_the_layer(interleaved):
    """PyTorch computes the same where a block is too small for an engine, and needs no pack to do so."""
    x, turn = features(), torch.rand(2, 5, WIDTH // 2)
    real, imaginary = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones(()), turn)[:, None]
    parts = [turned.real, turned.imag]
    expected = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)

    actual = rotary_embedding(x, turn.cos(), turn.sin(), interleaved)

    torch.testing.assert_close(actual, expected)
    rotary = Rotary(*ROTATIONS["neighbors" if interleaved else "halves"])
    model = torch.nn.Sequential(rotary, Gamma()).eval()  # without a converter
    with torchtrt.use_tensorrt("reference@11.4.0"), pytest.warns(NoEngineWarning):
        compiled = torchtrt.compile(model, [x], min_block_size=99)
    targets = {str(node.target) for node in compiled.graph_module.graph.nodes}
    assert OP not in targets
    torch.testing.assert_close(compiled(x), model(x))
