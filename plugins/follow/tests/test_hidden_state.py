"""Followed models whose state changes in places that ``torch.nn.Module`` does not list."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import exports_of_followed
from torchtrt.errors import FollowWarning
from torchtrt_follow import programs

X = torch.rand(3, 4)


@dataclass(slots=True)
class Gain:
    """A number in a slot."""

    value: float = 2.0

    def times(self, x):
        """Returns the product."""
        return x * self.value


class Model(nn.Module):
    """A layer, and something that is no module of the model's own."""

    def __init__(self, part, forward):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.part = part
        self.compute = forward

    def forward(self, x):
        """Returns as many rows."""
        return self.compute(self.part, self.layer(x))


def made(part, forward):
    """Returns a model with a part."""
    torch.manual_seed(0)
    return Model(part, forward).eval()


def agree(follower, model):
    """Compares a call with the model's own."""
    with torch.no_grad():
        torch.testing.assert_close(follower(X), model(X), rtol=1e-4, atol=1e-5)


def scale_weight(model):
    """Writes to a weight of a module in a list."""
    with torch.no_grad():
        model.part[0].weight.mul_(3)


def replace_weight(model):
    """Replaces a weight of a module in a list."""
    model.part[0].weight = nn.Parameter(torch.rand(4, 4))


def set_slot(model):
    """Changes a number in a slot."""
    model.part.value = 5.0


PARTS = {
    "weight of a module in a list": (
        lambda: [nn.Linear(4, 4)],
        lambda part, x: part[0](x),
        scale_weight,
    ),
    "weight that a module in a list gets": (
        lambda: [nn.Linear(4, 4)],
        lambda part, x: part[0](x),
        replace_weight,
    ),
    "number of a list in a list": (
        lambda: [[1.0], [2.0]],
        lambda part, x: x * part[0][0],
        lambda model: model.part[0].__setitem__(0, 9.0),
    ),
    "length of a list in a tuple": (
        lambda: (1.0, []),
        lambda part, x: x * len(part[1]),
        lambda model: model.part[1].append(2.0),
    ),
    "order of a dictionary": (
        lambda: {"a": 1.0, "b": 2.0},
        lambda part, x: x * next(iter(part.values())),
        lambda model: model.part.update(a=model.part.pop("a")),
    ),
    "order of a parameter dictionary": (
        lambda: nn.ParameterDict({"a": torch.ones(4), "b": torch.zeros(4)}),
        lambda part, x: x * next(iter(part.values())),
        lambda model: model.part.update({"a": model.part.pop("a")}),
    ),
    "number of a module in a list": (
        lambda: [nn.Dropout(0.5), nn.ELU(alpha=1.0).eval()],
        lambda part, x: part[1](x),
        lambda model: setattr(model.part[1], "alpha", 3.0),
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_change_in_a_hidden_place_is_followed(name):
    """Whatever holds the value."""
    part, forward, change = PARTS[name]
    model = made(part(), forward)
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    change(model)
    agree(follower, model)
    assert follower.torchtrt.programs


UNWATCHED = {
    "slot": (Gain, lambda part, x: x * part.value, set_slot),
    "array": (
        lambda: np.array([2.0, 3.0]),
        lambda part, x: x * float(part[0]),
        lambda model: model.part.fill(4.0),
    ),
    "bytes": (
        lambda: bytearray(b"ab"),
        lambda part, x: x * part[0],
        lambda model: model.part.extend(b"c") or model.part.reverse(),
    ),
    "argument of a partial": (
        lambda: functools.partial(lambda scales, x: x * scales["gain"], {"gain": 2.0}),
        lambda part, x: part(x),
        lambda model: model.part.args[0].update(gain=3.0),
    ),
    "owner of a method": (
        lambda: Gain().times,
        lambda part, x: part(x),
        lambda model: setattr(model.part.__self__, "value", 3.0),
    ),
}


@pytest.mark.parametrize("name", UNWATCHED)
def test_a_change_that_cannot_be_watched_is_followed_after_a_refresh(name):
    """The program is exported again."""
    part, forward, change = UNWATCHED[name]
    model = made(part(), forward)
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    change(model)
    follower.torchtrt.refresh()
    agree(follower, model)
    assert follower.torchtrt.programs


def test_a_refresh_builds_nothing_if_nothing_has_changed():
    """The exported program is the one that is there."""
    model = made([2.0], lambda part, x: x * part[0])
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    before = follower.torchtrt.programs
    follower.torchtrt.refresh()
    agree(follower, model)
    assert before == follower.torchtrt.programs


class Registry:
    """As diffusers has for the hooks of a model: it refers to what was called."""

    def __init__(self, owner):
        self.owner = owner


@pytest.mark.parametrize("wrap", [lambda model: [model], Registry], ids=["list", "object"])
def test_a_model_may_refer_to_what_follows_it(monkeypatch, wrap):
    """The follower shares its attributes, and keeps programs, which change with the calls."""
    model = made(None, lambda _, x: x.relu())
    follower = torchtrt.follow(model, min_block_size=1)
    other = torchtrt.follow(made(None, lambda _, x: x.sin()), min_block_size=1)
    follower.registry, follower.others = wrap(follower), wrap(other)
    agree(follower, model)
    exports = exports_of_followed(monkeypatch)
    agree(other, other.torchtrt.model)
    exports.clear()
    for _ in range(2):
        agree(follower, model)
    with torch.no_grad():
        model.layer.weight.mul_(2)
    agree(follower, model)
    assert [] == exports


def test_another_class_of_a_module_is_another_structure():
    """The instance has the same attributes as before."""

    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    model[0].__class__ = Doubled
    agree(follower, model)


@pytest.mark.parametrize(
    ("name", "view"), [("weight", torch.Tensor.t), ("bias", lambda bias: bias[:1])]
)
def test_data_that_becomes_a_view_of_itself_is_followed(name, view):
    """Its first element stays where it was, and PyTorch counts no write."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    weight = getattr(model[0], name)
    weight.data = view(weight.data)
    agree(follower, model)


def test_a_weight_with_other_strides_is_another_structure():
    """Python can read them."""

    class Reading(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2 if self.weight.is_contiguous() else 1)

    model = Reading(4, 4).eval()
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    model.weight = nn.Parameter(torch.rand(4, 4).t())
    agree(follower, model)


class Counting(nn.Module):
    """A buffer that each call writes to, and another one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("sums", torch.zeros(3, 4))
        self.register_buffer("other", torch.zeros(3, 4))

    def forward(self, x):
        """Returns as many rows."""
        y = self.layer(x)
        self.sums.add_(y)
        return y + self.other


def test_a_buffer_that_a_call_writes_to_causes_no_refit(monkeypatch):
    """It is the model's own."""
    model = Counting().eval()
    reference = copy.deepcopy(model)
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, reference)
    monkeypatch.setattr(programs, "refit_with_memory", lambda *_: pytest.fail("A refit."))
    for _ in range(2):
        agree(follower, reference)
    torch.testing.assert_close(model.sums, reference.sums)


@pytest.mark.parametrize("through_data", [False, True])
def test_a_written_buffer_that_comes_to_share_memory_is_no_refit(through_data):
    """PyTorch runs the model then, because an engine would read the other buffer as it was."""
    model = Counting().eval()
    reference = copy.deepcopy(model)
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, reference)
    for module in (model, reference):
        if through_data:
            module.sums.data = module.other.data
        else:
            module.other = module.sums[:]
    with pytest.warns(FollowWarning, match="shares memory"):
        agree(follower, reference)
    agree(follower, reference)
    torch.testing.assert_close(model.other, reference.other)


def test_weights_of_inference_mode_run_in_pytorch():
    """PyTorch counts no writes to them."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    with torch.inference_mode():
        model[0].weight = nn.Parameter(torch.rand(4, 4), requires_grad=False)
        with pytest.warns(FollowWarning, match="inference_mode"):
            agree(follower, model)
        model[0].weight.mul_(2)
        agree(follower, model)
    model[0].weight = nn.Parameter(torch.rand(4, 4))
    agree(follower, model)


class Settings(dict):
    """A dictionary whose keys are attributes, and which has no others."""

    __getattr__ = dict.__getitem__


def test_an_object_whose_attributes_are_keys_is_read_by_its_keys():
    """Asking it for another attribute is a ``KeyError``."""
    model = made(Settings(gain=2.0), lambda part, x: x * part.gain)
    follower = torchtrt.follow(model, min_block_size=1)
    with pytest.warns(FollowWarning, match="cannot be copied"):
        agree(follower, model)
    model.part["gain"] = 3.0
    agree(follower, model)


class Kind(Enum):
    """Two members with one text."""

    ONE, TWO = 1.0, 2.0

    def __repr__(self):
        return "<kind>"


class Unit(float):
    """A number that shows nothing of its value."""

    def __repr__(self):
        return "unit"


@pytest.mark.parametrize(
    ("part", "other", "forward"),
    [
        (Kind.ONE, Kind.TWO, lambda part, x: x * part.value),
        (Unit(2.0), Unit(3.0), lambda part, x: x * float(part)),
    ],
)
def test_values_of_one_text_are_distinguished(part, other, forward):
    """Their own ``__repr__`` does not decide."""
    model = made(part, forward)
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    model.part = other
    agree(follower, model)


def test_a_number_of_a_tensor_that_is_an_attribute_is_read_in_each_call():
    """A program would keep the first one, and no refit would replace it."""
    model = made(torch.tensor(2.0), lambda part, x: x * float(part))
    follower = torchtrt.follow(model, min_block_size=1)
    with pytest.warns(FollowWarning, match="reads a number from a tensor"):
        agree(follower, model)
    model.part.add_(1)
    agree(follower, model)


def test_a_write_to_a_tensor_in_a_list_happens_once_in_each_call():
    """Exporting does not run it."""

    def count(part, x):
        part[0].add_(1)
        return x * part[0]

    model, same = made([torch.zeros(())], count), made([torch.zeros(())], count)
    follower = torchtrt.follow(model, min_block_size=1)
    with torch.no_grad():
        with pytest.warns(FollowWarning, match="writes to a tensor"):
            results = [follower(X) for _ in range(3)]
        torch.testing.assert_close(results, [same(X) for _ in range(3)])


def test_the_default_device_belongs_to_a_call():
    """Tensors that ``forward`` makes are there."""
    model = made(None, lambda _, x: (x, torch.ones(3)))
    follower = torchtrt.follow(model, min_block_size=1)
    agree(follower, model)
    with torch.device("meta"), torch.no_grad():
        assert follower(X)[1].is_meta
    agree(follower, model)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (slice(0, 2), slice(0, 3)),
        (np.float32(2), np.float32(3)),
        (functools.partial(torch.mul, other=2), functools.partial(torch.mul, other=3)),
    ],
)
def test_a_folder_for_another_object_is_compared_with_the_model(there, here, tmp_path):
    """No text says what such an object is."""

    def use(part, x):
        if isinstance(part, slice):
            return x[:, part]
        return part(x) if callable(part) else x * float(part)

    saved = torchtrt.follow(made(there, use), min_block_size=1)
    with torch.no_grad():
        saved(X)
    saved.torchtrt.save(tmp_path)
    model = made(here, use)
    follower = torchtrt.follow(model, min_block_size=1)
    with pytest.warns(FollowWarning, match="may be another than the one"):
        follower.torchtrt.load(tmp_path)
    agree(follower, model)
