"""Other weights for a compiled model: right for every weight, or refused before anything has changed."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchtrt
from plugins.compiler.tests.refitted import Folded, Half, Tied, X, agree, compiled, made
from tests.support.shards import some
from tests.support.threads import calls_in_other_threads
from torchtrt.errors import (
    EngineError,
    InputError,
    RefitError,
    UnsupportedProgramError,
    VerificationError,
)
from torchtrt.packs import ConverterPack, PackInfo, add_pack, use_packs
from torchtrt_testing.faults import watched_tensorrt

# PyTorch's own, where what it calls a tree is copied.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")


class Normalized(nn.Module):
    """Convolutions and every kind of normalization."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.ConvTranspose2d(4, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
            nn.PReLU(4),
            nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
            # Of four values that hardly differ, what float16 rounds off would be a tenth.
            nn.LayerNorm(4, eps=0.1),
        )

    def forward(self, x):
        return self.layers(x.reshape(1, 4, 1, 4).expand(1, 4, 4, 4))


class BetweenEngines(nn.Module):
    """Weights that PyTorch reads, that engines read, and that both read."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.rand(4, 4))
        self.b = nn.Parameter(torch.rand(4))
        self.c = nn.Parameter(torch.rand(4, 4))

    def forward(self, x):
        y = torch.linalg.svdvals(x @ self.a + self.c.t())
        return torch.linalg.svdvals(torch.outer(y * self.b, self.b) + self.c * 2) * self.a[0]


class Written(nn.Module):
    """A buffer that is written to, and weights."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(4))
        self.total = nn.Buffer(torch.rand(4))

    def forward(self, x):
        self.total.add_((x * self.w).sum(0))
        return x + self.total


class Transformer(nn.Module):
    """Attention, recurrences and an embedding."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.recurrence = nn.LSTM(4, 4, batch_first=True)
        self.positions = nn.Embedding(4, 4)

    def forward(self, x):
        y = self.layer(x[None] + self.positions(torch.arange(4)))
        return self.recurrence(y)[0]


class Branches(nn.Module):
    """Weights inside a branch."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 8, lambda x: self.a(x) + 1, lambda x: self.b(x) * 2, (x,))


MODELS = (Folded, Normalized, Tied, BetweenEngines, Written, Transformer, Half, Branches)


@pytest.mark.parametrize(
    ("kind", "precision"),
    [*((kind, None) for kind in MODELS), *some(((kind, torch.float16) for kind in MODELS), 3)],
    ids=lambda value: getattr(value, "__name__", "autocast" if value else ""),
)
def test_a_refitted_model_computes_what_the_new_model_does(
    kind, precision, every_tensorrt, tmp_path
):
    """With weights from a model, a state dict or a program; compiled, loaded, from the cache, and again."""
    old, new, newer = (made(kind, seed) for seed in range(3))
    tolerance = 2e-3 if precision is None else 5e-2
    options = {"engine_cache": tmp_path / "cache", "autocast": precision}
    first, kept = (compiled(old, **options) for _ in range(2))
    torchtrt.save(first, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    assert all(block.cached for block in kept.report.blocks)
    agree(old, first, kept, loaded, tolerance=tolerance)
    names = dict(new.named_buffers(), **dict(new.named_parameters(remove_duplicate=False)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export, about recurrences
        program = torch.export.export(new, (X,))
    results = [
        torchtrt.refit_module_weights(first, new),
        torchtrt.refit_module_weights(kept, program),
        torchtrt.refit_module_weights(loaded, {**new.state_dict(), **names}),
    ]
    agree(new, *results, tolerance=tolerance)
    agree(old, first, kept, loaded, tolerance=tolerance)
    from_cache = compiled(new, **options)
    agree(new, from_cache, torchtrt.refit_module_weights(from_cache, new), tolerance=tolerance)
    torchtrt.save(results[0], tmp_path / "refitted.pt2")
    again = torchtrt.load(tmp_path / "refitted.pt2")
    agree(new, again, tolerance=tolerance)
    assert again is torchtrt.refit_module_weights(again, newer, in_place=True)
    agree(newer, again, torchtrt.refit_module_weights(results[1], newer), tolerance=tolerance)


def test_autocast_looks_only_at_weights_that_it_would_lower():
    """An embedding is float32 whatever its weights are: other ones may be smaller than float16 holds."""
    torch.manual_seed(0)
    old, new = (nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3)).eval() for _ in range(2))
    nn.init.ones_(old[0].weight)
    nn.init.constant_(new[0].weight, 1e-6)
    ids = torch.tensor([0, 3, 1])
    options = {"min_block_size": 1, "immutable_weights": False, "autocast": torch.float16}

    refitted = torchtrt.refit_module_weights(torchtrt.compile(old, [ids], **options), new)

    torch.testing.assert_close(refitted(ids), new(ids), rtol=1e-2, atol=1e-2)


@settings(max_examples=25, deadline=None)
@given(
    changed=st.sets(st.sampled_from(sorted(made(Folded, 0).state_dict()))), seed=st.integers(1, 9)
)
def test_any_subset_of_weights_may_change(changed, seed):
    """What is the same stays what it was."""
    if not hasattr(test_any_subset_of_weights_may_change, "model"):
        test_any_subset_of_weights_may_change.model = compiled(made(Folded, 0))
    new, other = made(Folded, 0), made(Folded, seed)
    for name in changed:
        new.get_buffer(name).copy_(other.get_buffer(name)) if name in dict(
            new.named_buffers()
        ) else new.get_parameter(name).data.copy_(other.get_parameter(name))

    agree(new, torchtrt.refit_module_weights(test_any_subset_of_weights_may_change.model, new))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(third=torch.rand(2)), "'third' is no weight of the model"),
        (
            lambda state: state.update(second=torch.rand(4, 5)),
            r"'second' is float32 \[4, 5\], and was",
        ),
        (lambda state: state.update(second=torch.rand(4, 4).double()), "'second' is float64"),
        (lambda state: state.update(ids=torch.ones(4, dtype=torch.int32)), "'ids' is int32"),
        (lambda state: state.update(second=torch.rand(4, 4).to_sparse()), "'second' is"),
        (lambda state: state.update(second=torch.rand(4, 4).to("meta")), "'second' is a tensor wi"),
        (lambda state: state.update(second=fake(4, 4)), "'second' is a tensor without values"),
        (lambda state: state.update(second=state["second"].numpy()), "'second' is an ndarray, no"),
        (
            lambda state: state.update(second=torch.nested.nested_tensor([X], layout=torch.jagged)),
            "'second' is a nested",
        ),
        (lambda state: state.update(second=None), "'second' is a NoneType, no tensor"),
        (lambda state: state.update({3: torch.rand(2)}), "3 is no weight of the model"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_anything_changes(change, message):
    """The error names each; the model computes what it did."""
    old = made(Folded, 0)
    model = compiled(old)
    state = dict(made(Folded, 1).state_dict())
    change(state)

    with pytest.raises(RefitError, match=message):
        torchtrt.refit_module_weights(model, state, in_place=True)
    agree(old, model)


class Sparse(nn.Module):
    """Adds a sparse matrix, made of weights, to another one."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))
        self.values = nn.Parameter(torch.rand(3))
        self.other = nn.Parameter(torch.rand(4))
        self.register_buffer("places", torch.tensor([[0, 1, 2], [0, 0, 3]]))

    def forward(self, x):
        sparse = torch.sparse_coo_tensor(self.places, self.values * 2, (4, 4))
        return x.expand(4, 4) @ (self.weight + sparse) + self.other


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", ["weight", "values"])
def test_what_is_computed_by_sparse_tensors_must_stay(name):
    """No memory tells how the engine's weights follow from the model's; other weights may change."""
    model, new = compiled(made(Sparse, 0)), made(Sparse, 0)
    with torch.no_grad():
        new.other.add_(1)
    agree(new, torchtrt.refit_module_weights(model, new))
    with torch.no_grad():
        new.get_parameter(name).add_(1)
    with pytest.raises(RefitError, match=f"follow from '{name}'"):
        torchtrt.refit_module_weights(model, new)


@pytest.mark.parametrize("option", [{"immutable_weights": False}, {"strip_engine_weights": True}])
def test_engines_that_get_weights_take_no_sparse_ones(option):
    """The error names the weight."""

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("edges", torch.eye(4).to_sparse())

        def forward(self, x):
            return self.edges.to_dense() * x

    with pytest.raises(UnsupportedProgramError, match="'edges' has the layout"):
        torchtrt.compile(Graph().eval(), [torch.rand(4)], min_block_size=1, **option)


def fake(*sizes):
    """Returns a tensor of which only the form is known."""
    with FakeTensorMode():
        return torch.empty(sizes)


def test_only_a_compiled_model_is_given_other_weights():
    """The order of the two is easily mistaken."""
    with pytest.raises(InputError, match=r"takes what torchtrt\.compile\(\) returned"):
        torchtrt.refit_module_weights(nn.Linear(3, 3), nn.Linear(3, 3))


def test_a_model_with_immutable_weights_says_how_to_change_them():
    """The default takes none."""
    model = torchtrt.compile(made(Folded, 0), [X])

    with pytest.raises(RefitError, match="immutable_weights=False"):
        torchtrt.refit_module_weights(model, made(Folded, 1))


def test_engines_stay_with_the_tensorrt_that_built_them():
    """Whichever is in use where they are loaded, refitted, copied and called."""
    old, new = made(Half, 0), made(Half, 1)
    with torchtrt.use_tensorrt("reference@8.6.0"):
        model = compiled(old)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        agree(old, model)
        agree(new, torchtrt.refit_module_weights(model, new))
        agree(old, copy.deepcopy(model))


def test_the_watch_over_weights_moves_to_the_new_ones():
    """After training has changed the model's weights, refitting with them makes the compiled model usable again."""
    model = made(BetweenEngines, 0)
    engines = compiled(model)
    with torch.no_grad():
        model.c.mul_(2)
    with pytest.raises(EngineError, match="has changed"):
        engines(X)
    torchtrt.refit_module_weights(engines, model, in_place=True)
    agree(model, engines)
    weight = model.a
    model.a = nn.Parameter(weight.detach().clone())
    with pytest.raises(EngineError, match="has changed"):
        engines(X)
    model.a = weight
    agree(model, engines)
    with torch.no_grad():
        model.a.add_(1)
    with pytest.raises(EngineError, match="has changed"):
        engines(X)


def test_a_refitted_model_has_memory_of_its_own():
    """Neither the original's buffers nor the new model's are written to."""
    old, new = made(Written, 0), made(Written, 1)
    totals = old.total.clone(), new.total.clone()
    model = torchtrt.refit_module_weights(compiled(old), new, in_place=True)
    model(X)
    model(X)

    torch.testing.assert_close(totals, (old.total, new.total), rtol=0, atol=0)
    new(X)
    new(X)
    torch.testing.assert_close(model(X), new(X))


@pytest.mark.parametrize("kind", [Half, BetweenEngines])
def test_calls_in_other_threads_compute_with_all_old_or_all_new_weights(kind):
    """In all engines and between them; nothing breaks while weights change."""
    old, new = made(kind, 0), made(kind, 1)
    model = compiled(old)
    expected = [module(X) for module in (old, new)]
    with calls_in_other_threads(lambda: model(X), expected, 1e-2) as wrong:
        for _ in range(20):
            for module in (new, old):
                torchtrt.refit_module_weights(model, module, in_place=True)

    assert [] == wrong


def test_refitting_in_place_keeps_what_is_no_weight():
    """A call that has begun ends with the graph that it began with; a buffer that is written to is the model's own."""
    old, new = made(BetweenEngines, 0), made(BetweenEngines, 1)
    model = compiled(old)
    running = model.graph_module

    assert model is torchtrt.refit_module_weights(model, new, in_place=True)

    (result,) = running(X)
    torch.testing.assert_close(result, old(X), rtol=2e-3, atol=2e-3)
    agree(new, model)


def test_refitting_neither_lowers_nor_builds():
    """That is what makes it faster than compiling."""
    torch.manual_seed(0)
    old, new = (nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval() for _ in range(2))
    x = torch.rand(2, 8)
    lowered, pack = [], ConverterPack("counting")

    @pack.lowering_pass()
    def count(graph_module, settings):
        lowered.append(graph_module)
        return graph_module

    with use_packs(), watched_tensorrt() as tensorrt:
        add_pack(pack, PackInfo("counting", "their-counting", "1.2", "/packs"))
        model = torchtrt.compile(old, [x], immutable_weights=False, min_block_size=1)
        assert (1, 1) == (len(lowered), len(tensorrt.builds))
        model = torchtrt.refit_module_weights(model, new)

    assert (1, 1) == (len(lowered), len(tensorrt.builds))
    torch.testing.assert_close(model(x), new(x), rtol=1e-4, atol=1e-4)


class Louder(BetweenEngines):
    """The same weights in another computation."""

    def forward(self, x):
        return super().forward(x) * 2


@pytest.mark.parametrize("in_place", [True, False])
def test_a_refit_can_be_compared_with_the_new_model(in_place):
    """Before anything changes; an output that differs is named with its sizes."""
    old, new, louder = BetweenEngines().eval(), BetweenEngines().eval(), Louder().eval()
    model = compiled(old)
    expected = model(X)

    with pytest.raises(VerificationError, match=r"output 0 for \[\[.*the difference is"):
        torchtrt.refit_module_weights(model, louder, in_place=in_place, verify=True)
    torch.testing.assert_close(model(X), expected)
    with pytest.raises(InputError, match="not a state dict"):
        torchtrt.refit_module_weights(model, new.state_dict(), verify=True)

    refitted = torchtrt.refit_module_weights(model, new, in_place=in_place, verify=True)
    torch.testing.assert_close(refitted(X), new(X), rtol=1e-4, atol=1e-5)
    assert (refitted is model) == in_place


def test_comparing_a_refit_leaves_the_buffers_of_the_new_model():
    """At each limit of the sizes, both models begin with the same values."""
    old, new = Written().eval(), Written().eval()
    rows = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(5, 4))
    model = torchtrt.compile(old, [rows], min_block_size=1, immutable_weights=False)
    total = new.total.clone()

    refitted = torchtrt.refit_module_weights(model, new, verify=True)

    torch.testing.assert_close(new.total, total, rtol=0, atol=0)
    x = torch.rand(3, 4)
    torch.testing.assert_close(refitted(x), new(x))


class Reshaped(nn.Module):
    """Computes from a buffer, and gives the result another shape in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.rand(1, 8))

    def forward(self, x):
        """Shape (batch, 8), as the result."""
        weight = (self.weight * 2).squeeze_(0).unsqueeze_(1).t_()
        return x * weight + torch.quantile(self.weight, 0.3)


def test_what_is_reshaped_in_place_follows_from_the_new_weights():
    """The recorded op has the shape from before."""
    model, other, x = Reshaped().eval(), Reshaped().eval(), torch.rand(3, 8)
    compiled = torchtrt.compile(model, [x], min_block_size=1, immutable_weights=False)
    refitted = torchtrt.refit_module_weights(compiled, other)
    torch.testing.assert_close(refitted(x), other(x))


def test_a_negated_view_is_a_weight_like_any_other():
    """PyTorch keeps the sign apart from the memory."""
    model, x = nn.Linear(8, 8).eval(), torch.rand(3, 8)
    compiled = torchtrt.compile(model, [x], min_block_size=1, immutable_weights=False)
    bias = torch.complex(torch.rand(8), torch.rand(8)).conj().imag
    refitted = torchtrt.refit_module_weights(compiled, {"bias": bias})
    torch.testing.assert_close(refitted(x), nn.functional.linear(x, model.weight, bias))
