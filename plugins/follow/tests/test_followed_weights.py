"""Followed models whose weights, buffers and structure change."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import torchtrt
from plugins.follow.tests.followed import X, agree, followed, made, programs
from tests.support.threads import calls_in_other_threads
from torchtrt.errors import FollowWarning, UnsupportedProgramError


def _load(model):
    model.load_state_dict(made(seed=1).state_dict())


def _load_some(model):
    model.load_state_dict({"second.bias": torch.rand(4)}, strict=False)


def _write(model):
    with torch.no_grad():
        model.first.weight.mul_(2)


def _replace(model):
    model.first.weight = nn.Parameter(torch.rand(8, 4))


def _replace_data(model):
    model.first.bias.data = torch.rand(8)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_followed(kind):
    """It keeps a list of its weights, which PyTorch makes anew while it exports the layer."""
    model = kind(4, 8, batch_first=True).eval()
    layer = torchtrt.follow(model, fallback=False)
    rows = torch.rand(2, 5, 4)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            model.load_state_dict(kind(4, 8).state_dict(), assign=seed == 2)
            torch.testing.assert_close(layer(rows)[0], model(rows)[0], rtol=2e-3, atol=2e-3)
    assert len(layer.torchtrt.programs) == 1


@pytest.mark.parametrize("change", [_load, _load_some, _write, _replace, _replace_data])
def test_other_weights_are_refitted(change):
    """The engines stay; each program gets them when it is called."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    agree(follower, model, X, as_dict=True)
    before = programs(follower)
    change(follower)
    agree(follower, model, X)
    agree(follower, model, X, as_dict=True)
    assert before == programs(follower)


@pytest.mark.parametrize("weights_only", [False, True])
def test_refresh_takes_weights_that_pytorch_saw_nobody_write(weights_only):
    """As through ``.data``."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    before = programs(follower)
    model.first.weight.data.mul_(2)
    follower.torchtrt.refresh(weights_only=weights_only)
    agree(follower, model, X)
    assert before == programs(follower)


def test_data_at_the_address_of_freed_data_is_followed():
    """Two assignments between calls often end where the first memory was; PyTorch counts neither."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval()
    follower, rows = followed(model), torch.rand(2, 64)
    for _ in range(10):
        agree(follower, model, rows)
        for _ in range(2):
            model[0].weight.data = model[0].weight.data * 1.5
    agree(follower, model, rows)
    assert 1 == len(programs(follower))


class Switched(nn.Module):
    """Reads a plain attribute of its own, and one of a module inside."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.value = self.linear.value = None

    def forward(self, x):
        """Returns as many rows, by rules for each kind of value."""
        x = self.linear(x)
        for value in (self.value, self.linear.value):
            match value:
                case None:
                    x = x.relu()
                case str():
                    x = getattr(x, value)()
                case (first, second):
                    x = x * first + second
                case _:
                    x = x * value
        return x


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "values", [(1, True, 1.0), (0.5, None, 0.25), ("sin", "cos"), ((1, 2), (2, 1))]
)
def test_plain_attributes_that_change_are_followed(values, inside):
    """Numbers, switches, text, None and tuples; 1, 1.0 and True are different values."""
    model = made(Switched)
    follower = followed(model)
    for value in (*values, *values):
        (model.linear if inside else model).value = value
        agree(follower, model, X)
    assert len(values) == len(programs(follower))


def test_steps_of_an_optimizer_are_followed():
    """Each step writes in place, to all weights at once."""
    model = made()
    follower = followed(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
    for _ in range(3):
        agree(follower, model, X)
        model(X).square().sum().backward()
        optimizer.step()
    agree(follower, model, X)
    assert 1 == len(programs(follower))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.to(torch.bfloat16).to(torch.float32),
        lambda model: setattr(model, "first", made(seed=1).first),
        lambda model: model.train() and model.eval(),
        lambda model: model.requires_grad_(False),
    ],
    ids=["rounded", "submodule", "modes", "requires_grad"],
)
def test_common_changes_of_a_model_build_nothing(change):
    """The results are those of the changed model."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    before = programs(follower)
    change(model)
    agree(follower, model, X)
    assert before == programs(follower)


def test_the_same_program_under_other_names_is_refitted():
    """Nothing is built for a weight that moved to another module."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    before = programs(follower)
    model.first = nn.Sequential(nn.Linear(4, 8)).eval()
    agree(follower, model, X)
    assert before == programs(follower)
    with torch.no_grad():
        model.first[0].weight.zero_()
    agree(follower, model, X)


class Tied(nn.Module):
    """An embedding that is also the head, and a tensor that is a plain attribute."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.offset = torch.rand(7)

    def forward(self, ids):
        return self.head(self.embedding(ids)) + self.offset


def test_tied_weights_and_plain_attributes_are_followed():
    """Also when they are no longer tied."""
    model = made(Tied)
    follower, ids = followed(model), torch.tensor([[1, 2]])
    agree(follower, model, ids)
    with torch.no_grad():
        model.embedding.weight.mul_(2)
    model.offset = torch.rand(7)
    agree(follower, model, ids)
    assert 1 == len(programs(follower))
    model.head.weight = nn.Parameter(torch.rand(7, 4))
    agree(follower, model, ids)
    with torch.no_grad():
        model.embedding.weight.mul_(2)
    agree(follower, model, ids)


class Counting(nn.Module):
    """A buffer that calls write to, and a weight between engines."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x.sum(0))
        y = torch.linalg.svdvals(self.linear(x)) @ self.linear.weight[:3]
        return y + self.total


def test_buffers_that_calls_write_to_are_the_models_own_also_after_a_refit():
    """A replaced one is written to from then on."""
    model = made(Counting)
    other = copy.deepcopy(model)
    follower = followed(model)
    for change in (
        lambda module: None,
        lambda module: module.linear.weight.mul_(0.5),
        lambda module: None,
    ):
        with torch.no_grad():
            for module in (model, other):
                change(module)
        agree(follower, other, X)
        torch.testing.assert_close(model.total, other.total)
    assert 1 == len(programs(follower))
    for module in (model, other):
        module.total = torch.ones(4)
    for _ in range(2):
        agree(follower, other, X)
        torch.testing.assert_close(model.total, other.total)


class Writing(nn.Module):
    """Writes to its input, or to a list, or to an attribute."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, seen=None, count=False):
        if seen is not None:
            seen.append(x + 1)
        if count:
            self.calls += 1
        x.mul_(2)
        return x * 3 + self.calls


def test_a_write_to_an_input_is_the_callers_and_other_writes_run_in_pytorch():
    """A program repeats no changes of lists and attributes."""
    model, other = made(Writing), made(Writing)
    follower = followed(model)
    x, y = X.clone(), X.clone()
    agree(lambda: follower(x), lambda: other(y))
    torch.testing.assert_close(x, y)

    seen, expected = [], []
    with pytest.warns(FollowWarning, match="container among its arguments"):
        agree(lambda: follower(x, seen), lambda: other(y, expected))
    torch.testing.assert_close(seen, expected)
    agree(lambda: follower(x, count=True), lambda: other(y, count=True))
    with pytest.warns(FollowWarning, match="changes 'calls'"):
        agree(lambda: follower(x, count=True), lambda: other(y, count=True))
    for _ in range(3):
        agree(lambda: follower(x, count=True), lambda: other(y, count=True))
    assert 5 == model.calls


def test_a_model_that_prepares_itself_in_its_first_call_is_compiled_in_the_second():
    """PyTorch runs the first."""

    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = None

        def forward(self, x):
            if self.table is None:
                self.table = [1.0, 2.0]
            return x * self.table[1]

    follower = followed(made(Lazy))
    for _ in range(3):
        agree(follower, made(Lazy), X)
    assert 1 == len(programs(follower))


class Remembering(nn.Module):
    """Keeps its last result, in the place of one of the same form."""

    def __init__(self):
        super().__init__()
        self.last = torch.zeros(3, 4)

    def forward(self, x):
        self.last = x * 2
        return self.last + 1


def test_a_model_that_changes_in_each_call_runs_in_pytorch_and_says_so():
    """Although it has the same structure after each of them."""
    model = made(Remembering)
    follower, strict = followed(model), followed(model, fallback=False)
    agree(follower, made(Remembering), X)
    with pytest.warns(FollowWarning, match="changes 'form of last'"):
        agree(follower, made(Remembering), X)
    agree(follower, made(Remembering), X)
    agree(strict, made(Remembering), X)
    for _ in range(2):
        with pytest.raises(UnsupportedProgramError, match="changes 'form of last'"):
            agree(strict, model, X)


class Numbering(nn.Module):
    """Counts its calls."""

    is_numbering = True

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.is_numbering
        return x * 3


def test_a_refresh_lets_a_model_be_compiled_that_changes_no_more(monkeypatch):
    """The calls before it ran in PyTorch."""
    follower = followed(made(Numbering))
    agree(follower, made(Numbering), X)
    with pytest.warns(FollowWarning, match="changes 'calls'"):
        agree(follower, made(Numbering), X)
    monkeypatch.setattr(Numbering, "is_numbering", False)
    follower.torchtrt.refresh()
    agree(follower, made(Numbering), X)
    assert 1 == len(programs(follower))


HOOKS = {
    "weight norm": nn.utils.weight_norm,
    "spectral norm": nn.utils.spectral_norm,
    "pruning": lambda module: prune.l1_unstructured(module, "weight", 0.5),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_weights_that_hooks_of_pytorch_compute_are_followed(name):
    """The hook of a layer puts them where they were in each call."""
    model = made()
    with torch.no_grad():
        HOOKS[name](model.first)
    other = copy.deepcopy(model)
    follower = followed(model)
    agree(follower, other, X)
    with torch.no_grad():
        for module in (model, other):
            for weight in module.parameters():
                weight.mul_(1.5)
    agree(follower, other, X)
    agree(follower, model, X)
    agree(follower, other, X)
    assert 1 == len(programs(follower))


def test_statistics_of_training_are_followed():
    """PyTorch does not count what batch normalization writes."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    follower, images = followed(model), torch.rand(2, 3, 5, 5)
    agree(follower, model, images)
    for module in (follower, model):
        module.train()
        module(images)
        module.eval()
        agree(follower, model, images)
    assert 1 == len(programs(follower))


def test_statistics_are_followed_by_the_program_of_another_structure():
    """That program reads the statistics, and not the number of batches by which their change is known."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    follower, rows = followed(model), torch.rand(6, 4)
    agree(follower, model, rows)
    model.epoch = 1
    agree(follower, model, rows)

    for _ in range(2):
        model.train()
        model(rows * 5)
        model.eval()
        agree(follower, model, rows)
    assert 1 == len(programs(follower))


@pytest.mark.parametrize("change", ["load_state_dict", "changing"])
def test_calls_in_other_threads_compute_with_all_old_or_all_new_weights(change):
    """While several weights are written in turn."""
    models = [made(seed=seed) for seed in (0, 1)]
    expected = [model(X).detach() for model in models]
    states = [model.state_dict() for model in models]
    follower = followed(made())
    agree(follower, models[0], X)
    with calls_in_other_threads(lambda: follower(X), expected) as wrong:
        for turn in range(30):
            if change == "load_state_dict":
                follower.load_state_dict(states[turn % 2])
            else:
                with follower.torchtrt.changing(), torch.no_grad():
                    for name, value in states[turn % 2].items():
                        follower.get_parameter(name).copy_(value)

    assert [] == wrong
    agree(follower, models[1], X)


def test_while_weights_change_other_threads_have_those_from_before_or_wait():
    """Also where a program has not got the last weights yet."""
    model, before = made(), made()
    follower = followed(model)
    agree(follower, model, X)
    agree(follower, model, X, as_dict=True)
    for module in (model, before):
        _write(module)
    agree(follower, model, X)
    results = {}

    def call(**options):
        with torch.no_grad():
            results[bool(options)] = follower(X, **options)

    threads = [
        threading.Thread(target=call, kwargs=options_) for options_ in ({}, {"as_dict": True})
    ]
    with follower.torchtrt.changing():
        _write(model)
        for thread in threads:
            thread.start()
        threads[0].join(20)
        assert threads[1].is_alive()
        _write(model)
    threads[1].join(20)

    torch.testing.assert_close(results[False], before(X), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(results[True]["rows"], model(X), rtol=1e-4, atol=1e-5)


def test_a_call_among_the_changes_has_them_and_other_threads_wait():
    """The engines have a half of the changes then."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    results = []

    def call():
        with torch.no_grad():
            results.append(follower(X))

    thread = threading.Thread(target=call)
    with follower.torchtrt.changing(), torch.no_grad():
        model.first.weight.mul_(2)
        agree(follower, model, X)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        model.second.weight.mul_(2)
    thread.join(20)

    torch.testing.assert_close(results[0], model(X).detach(), rtol=1e-4, atol=1e-5)
