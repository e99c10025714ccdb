"""Names of weights: of state dicts, tied weights, views, containers and plain attributes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchtrt
from plugins.compiler.tests.refitted import Folded, Half, Tied, X, agree, compiled, made
from tests.support.compiled import engines_of
from torchtrt.errors import RefitError

# PyTorch's own, where what it calls a tree is copied.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")


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
    """The others stay as they were, also in a loaded model, which has none of them."""
    old, new = made(Unmerged, 0), made(Unmerged, 1)
    new.base.load_state_dict(old.base.state_dict())
    adapter = {"adapter.weight": new.adapter.weight}
    model = compiled(old)
    torchtrt.save(model, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")

    for module in (model, loaded):
        torch.testing.assert_close(torchtrt.refit_module_weights(module, adapter)(X), new(X))


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
    newer = torch.export.export(new, (X,)) if as_program else new

    agree(new, torchtrt.refit_module_weights(compiled(old), newer))


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
    """A model has the new ones; a state dict must contain them."""
    old, new = made(View, 0), made(View, 1)

    agree(new, torchtrt.refit_module_weights(compiled(old), new))
    with pytest.raises(RefitError, match="'first' is missing"):
        torchtrt.refit_module_weights(compiled(old), new.state_dict())


class FirstRow(nn.Module):
    """A buffer that begins where a weight does, and is shorter."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.first = nn.Buffer(self.linear.weight.detach()[0])
        self.bits = nn.Buffer(self.linear.weight.detach().view(torch.int32))

    def forward(self, x):
        return self.linear(x).relu() + self.first, self.bits + x.int()


def test_weights_that_begin_at_one_address_are_several_weights():
    """TensorRT knows weights by their address."""
    old, new = made(FirstRow, 0), made(FirstRow, 1)

    for actual, expected in zip(
        torchtrt.refit_module_weights(compiled(old), new)(X), new(X), strict=True
    ):
        torch.testing.assert_close(actual, expected)


class Listed(nn.Module):
    """Tensors in a list."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.inner.scales = [torch.rand(4), torch.rand(4)]

    def forward(self, x):
        return self.inner(x) * self.inner.scales[0] + self.inner.scales[1]


def test_tensors_in_containers_are_the_same_or_refused_by_name():
    """Exported programs have no names for them."""
    old, new = made(Listed, 0), made(Listed, 1)
    model = compiled(old)
    with pytest.raises(
        RefitError, match=r"'inner.scales' is a list with a tensor of float32 \[4\]"
    ):
        torchtrt.refit_module_weights(model, new)

    new.inner.scales = [scale.clone() for scale in old.inner.scales]
    agree(new, torchtrt.refit_module_weights(model, new))


def test_weights_that_were_one_stay_one():
    """Tied weights with different values have no engine."""
    model = compiled(made(Tied, 0))
    state = made(Tied, 1).state_dict()
    with pytest.raises(RefitError, match="was one weight"):
        torchtrt.refit_module_weights(model, {**state, "head.weight": torch.rand(7, 4)})
    infinite = {"head.weight": torch.full((7, 4), torch.inf)}
    finite = {"embedding.weight": torch.full((7, 4), torch.finfo(torch.float32).max)}
    with pytest.raises(RefitError, match="was one weight"):
        torchtrt.refit_module_weights(model, {**state, **infinite, **finite})


def test_a_state_dict_keeps_buffers_that_it_does_not_hold():
    """Buffers that are no part of a state dict stay as they were."""
    old, new = made(Folded, 0), made(Folded, 1)
    model = torchtrt.refit_module_weights(compiled(old), new.state_dict())
    new.frequencies.copy_(old.frequencies)

    agree(new, model)


def test_weights_keep_the_models_names_in_the_engine():
    """TensorRT's own tools show them."""
    model = compiled(made(Half, 0))
    (engine,) = engines_of(model)

    assert {"linear.weight", "linear.bias"} <= set(engine.recipe.results)
