"""Why nodes stay in PyTorch, as codes that a program can act on: each by a model that has it."""

from __future__ import annotations

import pytest
import torch

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.packs import ConverterPack, PackInfo, Reject, use_packs
from torchtrt.packs.state import add_pack
from torchtrt.registry import DYNAMO_CONVERTERS

VISION = PackInfo("vision", "torchtrt-converters-vision", "1.0", "/packs")


class Eigenvalues(torch.nn.Module):
    """Has an op without a converter."""

    def forward(self, x):
        """Returns eigenvalues."""
        return torch.linalg.eigvalsh(x)


@pytest.fixture
def vision():
    """A third party's pack, gone after the test."""
    with use_packs():
        yield ConverterPack("vision")


def stays(function, *inputs, **settings):
    """Returns what stays in PyTorch of a function."""

    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    return torchtrt.explain(Model().eval(), inputs, **{"min_block_size": 1, **settings}).in_torch


X = torch.rand(4, 4)


@pytest.mark.parametrize(
    ("function", "settings", "expected"),
    [
        (torch.relu, {"torch_executed_ops": {"aten.relu"}}, "user-excluded"),
        (torch.nonzero, {"fallback_data_dependent_ops": True}, "user-excluded"),
        (lambda x: torch.igamma(x, x + 1), {"min_block_size": 2}, "block-too-small"),
        (lambda x: x.to(torch.complex128).sum().abs(), {}, "dtype"),
        (torch.linalg.eigvalsh, {}, "no-converter"),
        (lambda x: x + torch.randn(4), {"torch_executed_ops": {"aten.add"}}, "no-input"),
        (
            lambda x: torch.repeat_interleave(x.flatten().abs().to(torch.int64)) * 2,
            {"torch_executed_ops": {"aten.repeat_interleave"}},
            "unbounded-size",
        ),
    ],
)
def test_each_reason_has_its_code(function, settings, expected):
    """Of a model that is otherwise converted."""
    codes = {code for entry in stays(function, X, **settings) for code in entry.codes}

    assert expected in codes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"supports_dynamic_shapes": False}, "dynamic-shapes"),
        ({"supports_dynamic_shapes": True, "tensorrt": ">=99"}, "tensorrt-version"),
        ({"supports_dynamic_shapes": True, "reject_if": lambda node: 1 / 0}, "validator-failed"),
        (
            {"supports_dynamic_shapes": True, "reject_if": lambda node: Reject("no", "Do.")},
            "declined",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::torchtrt.errors.PackWarning")
def test_what_a_third_partys_converter_is_passed_over_for(vision, options, expected):
    """An op that no other pack converts, with a dynamic size."""
    vision.add("aten._linalg_eigh.default", lambda ctx, **_: None, **options)
    add_pack(vision, VISION)
    sizes = torchtrt.Input(min_shape=(2, 4, 4), opt_shape=(3, 4, 4), max_shape=(4, 4, 4))

    entries = torchtrt.explain(Eigenvalues().eval(), (sizes,)).in_torch
    (entry,) = entries  # the op whose decomposition needs it

    assert expected in entry.codes
    assert (("Do.",) if expected == "declined" else ()) == entry.advice


def test_a_reason_is_told_by_itself_too(vision):
    """Beside the text for users, which names its pack."""
    vision.add(
        "aten._linalg_eigh.default", lambda ctx, **_: None, reject_if=lambda node: "it is odd"
    )
    add_pack(vision, VISION)

    (entry,) = stays(lambda x: torch.ops.aten._linalg_eigh(x)[0], X)

    assert ("vision  rejected: it is odd", ("it is odd",)) == (entry.reason, entry.reasons)


def test_a_standard_converter_behind_a_decomposition(vision):
    """A third party's, of an op that a first-party pack decomposes into what stays in PyTorch."""
    target = next(
        target
        for target, (_, pack) in DYNAMO_CONVERTERS.decompositions().items()
        if pack.name == "aten_core" and not DYNAMO_CONVERTERS.candidates(target)
    )
    vision.add(target, lambda ctx, *args, **kwargs: None, supports_dynamic_shapes=True)
    add_pack(vision, VISION)
    graph = torch.fx.Graph()
    node = graph.call_function(target, ())

    (rejection,) = DYNAMO_CONVERTERS.resolve(node).rejections

    assert "behind-decomposition" == rejection.code


def test_an_op_that_writes_inside_is_no_write():
    """Full compilation does not pass over a normalization that updates its statistics."""

    class Model(torch.nn.Module):
        def forward(self, x, mean, var):
            return torch.instance_norm(x, None, None, mean, var, True, 0.1, 1e-5, False)

    inputs = (torch.rand(2, 3, 4), torch.zeros(3), torch.ones(3))

    with pytest.raises(torchtrt.errors.FullCompilationError) as caught:
        torchtrt.compile(Model().eval(), inputs, require_full_compilation=True)
    (normalization,) = caught.value.missing
    assert "decomposition" in normalization.codes
    assert "write" not in normalization.codes


class Selections(torch.nn.Module):
    """Selects in several ways, between ops on all elements."""

    def forward(self, x):
        kept = torch.exp(x) * 2
        return kept[x > 0] + 1, torch.nonzero(x), torch.masked_select(kept, x > 0), torch.tanh(kept)


@pytest.mark.parametrize("wanted", [False, True])
def test_no_engine_allocates_outputs_if_data_dependent_ops_stay_in_pytorch(version, wanted):
    """What they read is computed in engines all the same."""
    model = Selections().eval()
    compiled = torchtrt.compile(
        model, [torch.randn(4, 4)], min_block_size=1, fallback_data_dependent_ops=wanted
    )
    engines = engines_of(compiled)

    assert wanted != any(engine.requires_output_allocator for engine in engines)
    assert engines
    for x in (torch.randn(4, 4), -torch.ones(4, 4)):
        torch.testing.assert_close(compiled(x), model(x))
