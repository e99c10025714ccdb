"""Other weights for a compiled model: right for every weight, or refused before anything has changed."""

from __future__ import annotations

import copy
import sys
import threading
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import EngineError, InputError, RefitError
from torchtrt_compiler import building, compiler

# PyTorch's own, where what it calls a tree is copied.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")


class Folded(nn.Module):
    """Weights transposed, cast, expanded, multiplied with each other, and read twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.rand(4, 4))
        self.second = nn.Parameter(torch.rand(4, 4))
        self.scale = nn.Buffer(torch.rand(4))
        self.ids = nn.Buffer(torch.randint(0, 4, (4,)))
        self.frequencies = nn.Buffer(torch.rand(4), persistent=False)

    def forward(self, x):
        combined = (self.first.t() @ self.second).half().float() + self.scale[:, None].expand(4, 4)
        gathered = self.first[self.ids]
        again = self.frequencies.cos()
        x = x * again[None] + again.unsqueeze(0)
        y = x @ combined + x @ self.first + nn.functional.linear(x, self.first) * self.scale.exp()
        return y + gathered + self.frequencies + self.scale.flip(0) * torch.ones(4) + self.ids


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


class Tied(nn.Module):
    """An embedding that is also the head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding((x * 6).long()) + x[..., None])


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


class Half(nn.Module):
    """Weights in float16."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4).half()

    def forward(self, x):
        return self.linear(x.half())


class Branches(nn.Module):
    """Weights inside a branch."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 8, lambda x: self.a(x) + 1, lambda x: self.b(x) * 2, (x,))


MODELS = (Folded, Normalized, Tied, BetweenEngines, Written, Transformer, Half, Branches)
X = torch.rand(4, 4)


def made(kind, seed):
    """Returns a model with weights of its own, statistics included."""
    torch.manual_seed(seed)
    model = kind().eval()
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and "running" in name:
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model


def compiled(model, **options):
    """Returns a model compiled for other weights."""
    options = {"min_block_size": 1, "immutable_weights": False, **options}
    return torchtrt.compile(model, [X], **options)


def agree(model, *others, tolerance=2e-3):
    """Compares what models return, on values with both outcomes of branches."""
    for x in (X, X / 2) if isinstance(model, Tied) else (X, X * 3, X - 1):
        state = [copy.deepcopy(each) for each in (model, *others)]
        expected, *results = (each(x) for each in state)
        for result in results:
            torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("precision", [None, torch.float16], ids=["", "autocast"])
@pytest.mark.parametrize("kind", MODELS)
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
        (lambda state: state.update(third=torch.rand(2)), "'third' is none of the model's"),
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
        (lambda state: state.update({3: torch.rand(2)}), "3 is none of the model's"),
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


class Adapted(nn.Module):
    """A weight with an adapter, of which one output adds the two and the other multiplies them."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.adapter = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        merged = x @ (self.base.weight + self.adapter.weight)
        return self.base(x) + self.adapter(x), merged


class Unmerged(Adapted):
    """The same, without the product."""

    def forward(self, x):
        return (self.base(x) + self.adapter(x),)


def test_a_state_dict_of_some_weights_is_enough(tmp_path):
    """The others stay as they were, also in a loaded model, which knows none of them."""
    old, new = made(Unmerged, 0), made(Unmerged, 1)
    new.base.load_state_dict(old.base.state_dict())
    adapter = {"adapter.weight": new.adapter.weight}
    model = compiled(old)
    torchtrt.save(model, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")

    for each in (model, loaded):
        torch.testing.assert_close(torchtrt.refit_module_weights(each, adapter)(X), new(X))


def test_a_weight_computed_from_given_and_other_weights_needs_their_values(tmp_path):
    """The model has them as long as it is alive and unchanged; the error names what else to give."""
    old, new = made(Adapted, 0), made(Adapted, 1)
    new.base.load_state_dict(old.base.state_dict())
    adapter = {"adapter.weight": new.adapter.weight}
    model = compiled(old)
    torchtrt.save(model, tmp_path / "model.pt2")

    torch.testing.assert_close(torchtrt.refit_module_weights(model, adapter)(X), new(X))
    loaded = torchtrt.load(tmp_path / "model.pt2")
    with pytest.raises(RefitError, match=r"'base\.weight' is missing"):
        torchtrt.refit_module_weights(loaded, adapter)
    with torch.no_grad():
        old.base.weight.mul_(2)
    with pytest.raises(RefitError, match=r"'base\.weight' is missing"):
        torchtrt.refit_module_weights(model, adapter)
    torch.testing.assert_close(loaded(X), made(Adapted, 0)(X))


def test_one_name_of_a_tied_weight_stands_for_all():
    """They stay one."""
    old, new = made(Tied, 0), made(Tied, 1)

    agree(new, torchtrt.refit_module_weights(compiled(old), {"head.weight": new.head.weight}))


def fake(*sizes):
    """Returns a tensor of which only the form is known."""
    with FakeTensorMode():
        return torch.empty(sizes)


def test_a_model_without_values_is_refused_by_the_names_of_its_weights():
    """One on the meta device, and one whose shapes its first call decides."""
    model = compiled(made(Folded, 0))
    with torch.device("meta"):
        new = Folded()
    with pytest.raises(RefitError, match="'frequencies' is a tensor without values"):
        torchtrt.refit_module_weights(model, new)

    model = compiled(nn.Sequential(nn.Linear(4, 4)).eval())
    with pytest.raises(RefitError, match=r"'0\.bias' is a tensor without values"):
        torchtrt.refit_module_weights(model, nn.Sequential(nn.LazyLinear(4)))


class Plain(nn.Module):
    """Tensors that are plain attributes, of the model and of a module in it; one is made in its code."""

    def __init__(self):
        super().__init__()
        self.scale = torch.rand(4)
        self.inner = nn.Linear(4, 4)
        self.inner.offset = torch.rand(4)
        self.unused = torch.rand(2)

    def forward(self, x):
        return self.inner(x) * self.scale + self.inner.offset.exp() + torch.tensor([1.0, 2, 3, 4])


@pytest.mark.parametrize("as_program", [False, True])
def test_tensors_that_are_plain_attributes_are_weights_too(as_program):
    """They have names; what the model's code makes, and what the model does not read, has none."""
    old, new = made(Plain, 0), made(Plain, 1)
    given = torch.export.export(new, (X,)) if as_program else new

    agree(new, torchtrt.refit_module_weights(compiled(old), given))


def test_a_state_dict_keeps_plain_attributes():
    """It holds none; one that was given under its name is taken."""
    old, new = made(Plain, 0), made(Plain, 1)
    refitted = torchtrt.refit_module_weights(
        compiled(old), {**new.state_dict(), "scale": new.scale}
    )
    new.inner.offset = old.inner.offset

    agree(new, refitted)


class View(nn.Module):
    """An attribute that is a view of a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Buffer(torch.rand(2, 4))
        self.first = self.weight[0]

    def forward(self, x):
        return x @ self.weight.t() + (x * self.first).sum(-1, keepdim=True)


def test_a_view_of_a_weight_never_keeps_the_old_values():
    """A model has the new ones; a state dict has to tell them."""
    old, new = made(View, 0), made(View, 1)

    agree(new, torchtrt.refit_module_weights(compiled(old), new))
    with pytest.raises(RefitError, match="'first' is missing"):
        torchtrt.refit_module_weights(compiled(old), new.state_dict())


class Listed(nn.Module):
    """Tensors in a list."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.inner.scales = [torch.rand(4), torch.rand(4)]

    def forward(self, x):
        return self.inner(x) * self.inner.scales[0] + self.inner.scales[1]


def test_tensors_in_containers_are_the_same_or_refused_by_name():
    """Exporting tells no names of theirs."""
    old, new = made(Listed, 0), made(Listed, 1)
    model = compiled(old)
    with pytest.raises(
        RefitError, match=r"'inner.scales' is a list with a tensor of float32 \[4\]"
    ):
        torchtrt.refit_module_weights(model, new)

    new.inner.scales = [each.clone() for each in old.inner.scales]
    agree(new, torchtrt.refit_module_weights(model, new))


def test_weights_that_were_one_stay_one():
    """Tied weights with different values have no engine."""
    model = compiled(made(Tied, 0))
    state = made(Tied, 1).state_dict()
    with pytest.raises(RefitError, match="was one weight"):
        torchtrt.refit_module_weights(model, {**state, "head.weight": torch.rand(7, 4)})


def test_a_state_dict_keeps_buffers_that_it_does_not_hold():
    """Buffers that are no part of a state dict stay as they were."""
    old, new = made(Folded, 0), made(Folded, 1)
    model = torchtrt.refit_module_weights(compiled(old), new.state_dict())
    new.frequencies.copy_(old.frequencies)

    agree(new, model)


class Power(nn.Module):
    """A weight that a converter reads as a number."""

    def __init__(self, exponent):
        super().__init__()
        self.exponent = nn.Buffer(torch.tensor(exponent))
        self.w = nn.Parameter(torch.rand(4))

    def forward(self, x):
        return torch.pow(x + 1, self.exponent) * self.w


def test_what_a_converter_reads_as_a_number_is_right_or_refused():
    """Other weights may change; the model never computes with the old number."""
    model = compiled(Power(2.0).eval())
    agree(same := Power(2.0).eval(), torchtrt.refit_module_weights(model, same))
    other = Power(3.0).eval()
    try:
        refitted = torchtrt.refit_module_weights(model, other)
    except RefitError as error:
        message = str(error)
        assert "Values that follow from 'exponent' are compiled into" in message
        assert "Compile the model with the new weights" in message
    else:
        agree(other, refitted)


def test_every_number_that_leaves_a_weight_is_checked(fresh):
    """item, tolist, numpy, bool and repr in a converter or a pass of a pack."""
    code = (
        "import torch, torchtrt\n"
        "from torchtrt.registry import ConverterPriority\n"
        "READ = None\n"
        "@torchtrt.dynamo_tensorrt_converter(\n"
        "    torch.ops.aten.mul.Tensor, priority=ConverterPriority.HIGH, keep_constants=True)\n"
        "def mul(ctx, self, other):\n"
        "    number = READ(other)\n"
        "    constant = ctx.tensor(torch.full(other.shape, number))\n"
        "    return ctx.net.add_elementwise(self, constant, torchtrt.trt.ElementWiseOperation.PROD).get_output(0)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, value):\n"
        "        super().__init__(); self.w = torch.nn.Buffer(torch.full((1, 1), value))\n"
        "    def forward(self, x): return x * self.w\n"
        "reads = [lambda w: w.item(), lambda w: w.tolist()[0][0], lambda w: float(w.numpy()[0, 0]),\n"
        "    lambda w: 2.0 if w > 1 else 1.0, lambda w: float(repr(w.squeeze()).split('(')[1].split(')')[0]),\n"
        "    lambda w: float(w.double().sum()), lambda w: 2.0 if torch.equal(w, torch.full((1, 1), 2.0)) else 9.0,\n"
        "    lambda w: float(w.t().contiguous().numpy().max())]\n"
        "x = torch.ones(1, 3)\n"
        "for READ in reads:\n"
        "    compiled = torchtrt.compile(Model(2.0).eval(), [x], min_block_size=1, immutable_weights=False)\n"
        "    assert compiled(x)[0, 0] == 2\n"
        "    torchtrt.refit_module_weights(compiled, Model(2.0))\n"
        "    try: torchtrt.refit_module_weights(compiled, Model(0.5)); print('wrong')\n"
        "    except torchtrt.errors.RefitError: print('refused')\n"
    )

    assert ["refused"] * 8 == fresh(code).splitlines()


def test_a_converter_may_compute_with_weights_in_any_way(fresh):
    """Views, writes in place, memory of its own: what was done is done again."""
    code = (
        "import torch, torchtrt\n"
        "from torchtrt.registry import ConverterPriority\n"
        "@torchtrt.dynamo_tensorrt_converter(\n"
        "    torch.ops.aten.mul.Tensor, priority=ConverterPriority.HIGH, keep_constants=True)\n"
        "def mul(ctx, self, other):\n"
        "    made = torch.zeros(3, 3)\n"
        "    made[0] = other[0] * 0.5\n"
        "    row = made[1:]\n"
        "    row.copy_(other[1:]); row.mul_(0.5)\n"
        "    made += made.clone()\n"
        "    table = torch.tensor([1.0, 1.0, 1.0])\n"
        "    table[1] = 1.0\n"
        "    made = torch.where(other > 0.5, made, made * table)\n"
        "    return ctx.net.add_elementwise(\n"
        "        self, ctx.tensor(made), torchtrt.trt.ElementWiseOperation.PROD).get_output(0)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.w = torch.nn.Parameter(torch.rand(3, 3))\n"
        "    def forward(self, x): return x * self.w\n"
        "x, old, new = torch.rand(3, 3), Model().eval(), Model().eval()\n"
        "compiled = torchtrt.compile(old, [x], min_block_size=1, immutable_weights=False)\n"
        "torch.testing.assert_close(compiled(x), old(x))\n"
        "before = new.w.clone()\n"
        "torch.testing.assert_close(torchtrt.refit_module_weights(compiled, new)(x), new(x))\n"
        "assert torch.equal(before, new.w); print('right')\n"
    )

    assert "right" == fresh(code)


def test_what_a_converter_computes_in_another_thread_is_right_or_refused(fresh):
    """Nobody sees what happens there: the weight must stay what it is, and others need not."""
    code = (
        "import torch, torchtrt\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from torchtrt.conversion import add\n"
        "from torchtrt.errors import RefitError\n"
        "from torchtrt.registry import ConverterPriority\n"
        "pool = ThreadPoolExecutor(1)\n"
        "@torchtrt.dynamo_tensorrt_converter(\n"
        "    torch.ops.aten.mul.Tensor, priority=ConverterPriority.HIGH, keep_constants=True)\n"
        "def mul(ctx, self, other):\n"
        "    doubled = pool.submit(lambda: other * 2).result()\n"
        "    kind = torchtrt.trt.ElementWiseOperation.PROD\n"
        "    return add(ctx, 'elementwise', self, ctx.tensor(doubled), kind)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.rand(1, 4))\n"
        "        self.linear = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return self.linear(x) * self.scale\n"
        "old, new, x = Model().eval(), Model().eval(), torch.rand(2, 4)\n"
        "model = torchtrt.compile(old, [x], min_block_size=1, immutable_weights=False)\n"
        "try: torchtrt.refit_module_weights(model, new)\n"
        "except RefitError as error: print(error)\n"
        "new.scale.data.copy_(old.scale)\n"
        "refitted = torchtrt.refit_module_weights(model, new)\n"
        "torch.testing.assert_close(refitted(x), 2 * new(x))\n"
    )

    assert fresh(code).startswith("Values that follow from 'scale' are compiled into the engine of")


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
    expected = [each(X) for each in (old, new)]
    wrong = []
    stop = threading.Event()

    def call():
        try:
            while not stop.is_set():
                result = model(X)
                if not any(torch.allclose(result, each, atol=1e-2) for each in expected):
                    wrong.append(result)
        except Exception as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            for each in (new, old):
                torchtrt.refit_module_weights(model, each, in_place=True)
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join()

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


def test_refitting_neither_lowers_nor_builds(monkeypatch):
    """That is what makes it faster than compiling."""
    torch.manual_seed(0)
    old, new = (nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval() for _ in range(2))
    x = torch.rand(2, 8)
    done = []
    for module, name in ((compiler, "lower"), (building, "build_plan")):
        call = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, _call=call, _name=name: done.append(_name) or _call(*args)
        )

    model = torchtrt.compile(old, [x], immutable_weights=False, min_block_size=1)
    assert ["lower", "build_plan"] == done
    model = torchtrt.refit_module_weights(model, new)

    assert ["lower", "build_plan"] == done
    torch.testing.assert_close(model(x), new(x), rtol=1e-4, atol=1e-4)


def test_weights_keep_the_models_names_in_the_engine():
    """TensorRT's own tools show them."""
    model = compiled(made(Half, 0))
    (engine,) = engines_of(model)

    assert {"linear.weight", "linear.bias"} <= set(engine.weights["results"])
