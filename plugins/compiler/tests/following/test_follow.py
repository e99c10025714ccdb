"""Followed models: what eager PyTorch computes, whatever changes between the calls."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import FollowWarning, InputError, SettingsError


class Block(nn.Module):
    """Weights, a switch, a number, and a result in a dictionary."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)
        self.gain = 2.0
        self.config = {"name": "block"}

    @property
    def width(self):
        """The elements of a row."""
        return self.first.in_features

    def forward(self, x, mask=None, *, as_dict=False):
        """Returns as many rows."""
        y = self.second(self.first(x).relu()) * self.gain
        if mask is not None:
            y = y * mask
        return {"rows": y, "nothing": None} if as_dict else y


def made(kind=Block, seed=0):
    """Returns a model in eval mode."""
    torch.manual_seed(seed)
    return kind().eval()


def followed(model, **options):
    """Returns a model followed, with blocks of any size."""
    return torchtrt.follow(model, min_block_size=1, **options)


def agree(compiled, model, *args, **kwargs):
    """Compares a call with the model's own."""
    with torch.no_grad():
        actual, expected = compiled(*args, **kwargs), model(*args, **kwargs)
    assert type(actual) is type(expected)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


X = torch.rand(3, 4)


def programs(model):
    """Returns the compiled programs of a followed model."""
    return model.torchtrt.programs


def test_a_followed_model_is_its_model_to_everything_else():
    """Class, attributes, names of weights, modes and moves; in a parent as well."""
    model = made()
    follower = followed(model)

    assert isinstance(follower, Block)
    assert "Block" == type(follower).__name__
    assert 4 == follower.width
    assert follower.config is model.config
    assert model.state_dict().keys() == follower.state_dict().keys()
    assert list(model.parameters()) == list(follower.parameters())
    assert follower.eval() is follower
    follower.gain = 3.0
    assert 3.0 == model.gain
    parent = nn.Sequential(follower)
    assert ["0.first.weight"] == [name for name, _ in parent.named_parameters()][:1]
    agree(parent, model, X)
    assert follower.to(torch.float64) is follower
    assert torch.float64 is model.first.weight.dtype
    agree(follower, model, X.double())


def test_a_call_is_the_same_program_however_its_arguments_are_given():
    """By place or by name, in any order, defaults given or not."""
    model = made()
    follower = followed(model)
    mask = torch.ones(3, 1)
    agree(follower, model, X, mask)
    agree(follower, model, mask=mask, x=X)
    agree(follower, model, X, mask=mask, as_dict=False)
    assert 1 == len(programs(follower))
    agree(follower, model, X, None)
    agree(follower, model, X, as_dict=True)
    assert 3 == len(programs(follower))


def test_sizes_that_differ_vary_from_the_second_on():
    """The bounds are powers of 2; a new program replaces the one whose sizes it takes."""
    model = made()
    follower = followed(model)
    seen = []
    for rows in (3, 5, 4, 7, 8, 9, 1, 3):
        agree(follower, model, torch.rand(rows, 4))
        seen.append(programs(follower)[-1])
    assert 1 == len(programs(follower))
    assert 4 == len({id(each) for each in seen})  # 3, 2 to 8, to 16, and from 1


def test_declared_sizes_are_compiled_once():
    """As ranges, as Dim and as Input; sizes outside get programs of their own."""
    model = made()
    for declared in (
        {0: (1, 9)},
        {0: (1, 2, 9)},
        {0: torch.export.Dim("rows", min=1, max=9)},
        torchtrt.Input(min_shape=(1, 4), opt_shape=(3, 4), max_shape=(9, 4)),
    ):
        follower = followed(model, dynamic_shapes={"x": declared})
        for rows in (3, 9, 1):
            agree(follower, model, torch.rand(rows, 4))
        assert 1 == len(programs(follower))
    agree(follower, model, torch.rand(12, 4))
    assert 2 == len(programs(follower))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"y": {0: (1, 2)}}, "names 'y'"),
        ({"x": {7: (1, 2)}}, "dimension 7"),
        ({"x": {0: (4, 2)}}, "no range"),
        ({"x": {0: 3}}, "Give .min, max"),
    ],
)
def test_a_declaration_that_does_not_fit_is_an_error(declared, message):
    """Not a reason to run in PyTorch."""
    with pytest.raises(InputError, match=message):
        agree(followed(made(), dynamic_shapes=declared, fallback=False), made(), X)


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


def test_refresh_takes_weights_that_pytorch_saw_nobody_write():
    """As through ``.data``."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    model.first.weight.data.mul_(2)
    follower.torchtrt.refresh()
    agree(follower, model, X)


def test_another_structure_is_another_program_and_the_first_is_found_again():
    """A module, a number in an attribute, a hook that PyTorch runs."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    first = programs(follower)
    model.gain = 0.5
    agree(follower, model, X)
    model.first = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    model.eval()
    agree(follower, model, X)
    assert 3 == len(programs(follower))
    model.gain, model.first = 2.0, made().first
    agree(follower, model, X)
    assert first[0] in programs(follower)


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
    for change in (lambda each: None, lambda each: each.linear.weight.mul_(0.5), lambda each: None):
        with torch.no_grad():
            for each in (model, other):
                change(each)
        agree(follower, other, X)
        torch.testing.assert_close(model.total, other.total)
    assert 1 == len(programs(follower))
    for each in (model, other):
        each.total = torch.ones(4)
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


def test_statistics_of_training_are_followed():
    """PyTorch does not count what batch normalization writes."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    follower, images = followed(model), torch.rand(2, 3, 5, 5)
    agree(follower, model, images)
    for each in (follower, model):
        each.train()
        each(images)
        each.eval()
        agree(follower, model, images)
    assert 1 == len(programs(follower))


def test_training_and_gradients_run_in_pytorch():
    """Gradients reach the model's parameters; eval mode with gradients says so once."""
    model = made()
    follower = followed(model)
    follower.train()
    follower(X).sum().backward()
    assert model.first.weight.grad is not None
    follower.eval()
    with pytest.warns(FollowWarning, match="may want gradients"):
        follower(X)
    assert [] == programs(follower)
    with torch.inference_mode():
        torch.testing.assert_close(follower(X), model(X), rtol=1e-4, atol=1e-5)
    assert 1 == len(programs(follower))
    with torch.inference_mode():
        agree(follower, model, torch.rand(3, 4))
    with torch.no_grad():
        model.first.weight.add_(1)
    with torch.inference_mode():
        torch.testing.assert_close(follower(X), model(X), rtol=1e-4, atol=1e-5)
    model.requires_grad_(False)
    torch.testing.assert_close(follower(X), model(X), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_compiled_runs_in_pytorch_or_raises():
    """With one warning for a kind of call."""

    class Branching(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    model = made(Branching)
    follower = followed(model)
    with pytest.warns(
        FollowWarning, match=r"Branching runs in PyTorch for calls like \(float32\[3, 4\]\)"
    ):
        agree(follower, model, X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(follower, model, -X)
    with pytest.raises(Exception, match="could not trace"), torch.no_grad():
        followed(model, fallback=False)(X)


def test_the_number_of_programs_has_a_limit():
    """The warning names the arguments; with ``fallback=False`` it is an error."""

    class Scaled(nn.Module):
        def forward(self, x, step):
            return x * step + step

    model = made(Scaled)
    follower = followed(model, max_programs=2)
    agree(follower, model, X, 1)
    agree(follower, model, X, 2)
    with pytest.warns(FollowWarning, match=r"max_programs.*\(float32\[3, 4\], 3\)"):
        agree(follower, model, X, 3)
    agree(follower, model, X, 2)
    assert 2 == len(programs(follower))
    strict = followed(model, max_programs=1, fallback=False)
    agree(strict, model, X, 1)
    with pytest.raises(InputError, match="max_programs"), torch.no_grad():
        strict(X, 2)
    with pytest.raises(SettingsError, match="max_programs"):
        followed(model, max_programs=0)


def test_a_size_that_the_model_fixes_gets_programs_of_its_own():
    """There is no range to compile for."""

    class Fixing(nn.Module):
        def forward(self, x):
            return x.reshape(-1) * 2 if x.shape[0] == 3 else x + int(x.shape[0])

    model = made(Fixing)
    follower = followed(model)
    for rows in (3, 5, 6, 3, 5):
        agree(follower, model, torch.rand(rows, 4))


def test_sizes_that_broadcast_get_programs_of_their_own():
    """A size that is 1 in one call and not in another is no size that torch.export could vary."""

    class Adding(nn.Module):
        def forward(self, x, y):
            return x.sin() + y

    model = made(Adding)
    follower = followed(model, fallback=False)
    for rows, others in ((3, 3), (3, 1), (3, 3), (1, 3), (6, 6), (6, 1)):
        agree(follower, model, torch.rand(rows, 4), torch.rand(others, 4))


def test_hooks_of_the_model_run_and_hooks_inside_keep_it_in_pytorch():
    """Python code runs in each call, as in eager PyTorch."""
    model = made()
    follower = followed(model)
    seen = []
    hook = follower.register_forward_hook(lambda *_: seen.append("outside"))
    agree(follower, lambda x: made()(x), X)
    agree(follower, lambda x: made()(x), X)
    hook.remove()
    assert ["outside"] * 2 == seen
    assert 1 == len(programs(follower))
    model.first.register_forward_hook(lambda *_: seen.append("inside"))
    with pytest.warns(FollowWarning, match="'first' has the forward hook"):
        agree(follower, lambda x: made()(x), X)
    assert 1 == seen.count("inside")


def test_a_followed_model_inside_another_is_a_part_of_it():
    """And runs by itself."""
    inner = followed(made())
    outer = nn.Sequential(inner, nn.Tanh()).eval()
    follower = followed(outer)
    expected = nn.Sequential(made(), nn.Tanh())
    agree(follower, expected, X)
    agree(inner, made(), X)
    assert 1 == len(programs(follower)) == len(programs(inner))
    agree(followed(inner), made(), X)
    shared = nn.ModuleList([inner, nn.ModuleList([inner])])
    agree(shared[1][0], made(), X)
    assert 4 == len(list(shared.parameters()))


def test_copies_and_pickles_are_followed_and_compile_anew():
    """With weights of their own."""
    follower = followed(made(), dynamic_shapes={"x": {0: (1, 8)}})
    agree(follower, made(), X)
    for copied in (
        copy.deepcopy(follower),
        pickle.loads(pickle.dumps(follower)),
        copy.copy(follower),
    ):
        assert [] == programs(copied)
        agree(copied, made(), X)
        assert 1 == len(programs(copied))
    with torch.no_grad():
        copy.deepcopy(follower).first.weight.zero_()
    agree(follower, made(), X)


def test_a_part_may_refer_to_the_followed_model():
    """As registries of hooks do; the copy that is exported, and copies of its user, have their own."""

    class Registry:
        """Refers to a model."""

    follower = followed(made())
    follower.registry = Registry()
    follower.registry.owner = follower
    agree(follower, made(), X)
    copied = copy.deepcopy(follower)
    assert copied.registry.owner is copied
    pair = copy.deepcopy(nn.ModuleList([follower.torchtrt.model, follower]))
    assert pair[1].torchtrt.model is pair[0]
    agree(pair[1], made(), X)


def test_a_replaced_forward_is_the_followed_models_only():
    """As libraries do that move a model before its call; engines run inside."""
    model = made()
    follower = followed(model)
    original = follower.forward
    follower.forward = lambda *args, **kwargs: original(*args, **kwargs) + 1
    agree(follower, lambda x: model(x) + 1, X)
    assert 1 == len(programs(follower))
    del follower.forward
    agree(follower, model, X)


def test_autocast_is_a_part_of_the_call():
    """Casts are compiled in."""
    model = made()
    follower = followed(model)
    agree(follower, model, X)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        actual, expected = follower(X), model(X)
    assert expected.dtype is actual.dtype
    torch.testing.assert_close(actual, expected, rtol=5e-2, atol=5e-2)
    agree(follower, model, X)
    assert 2 == len(programs(follower))


def test_exporting_and_transforming_see_the_model():
    """Engines show nothing."""
    model = made()
    follower = followed(model)
    exported = torch.export.export(follower, (X,))
    agree(exported.module(), model, X)
    rows = torch.vmap(follower)(X)
    torch.testing.assert_close(rows, model(X))
    torch._dynamo.reset()
    agree(torch.compile(follower, backend="eager"), model, X)


@pytest.mark.parametrize("change", ["load_state_dict", "changing"])
def test_calls_in_other_threads_compute_with_all_old_or_all_new_weights(change):
    """While several weights are written in turn."""
    models = [made(seed=seed) for seed in (0, 1)]
    expected = [model(X).detach() for model in models]
    states = [model.state_dict() for model in models]
    follower = followed(made())
    agree(follower, models[0], X)
    wrong, stop = [], threading.Event()

    def call():
        try:
            while not stop.is_set():
                with torch.no_grad():
                    result = follower(X)
                if not any(torch.allclose(result, each, atol=1e-4) for each in expected):
                    wrong.append(result)
        except Exception as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=call) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for turn in range(30):
            if change == "load_state_dict":
                follower.load_state_dict(states[turn % 2])
            else:
                with follower.torchtrt.changing(), torch.no_grad():
                    for name, value in states[turn % 2].items():
                        follower.get_parameter(name).copy_(value)
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join()

    assert [] == wrong
    agree(follower, models[1], X)


def test_while_weights_change_other_threads_have_those_from_before_or_wait():
    """Also where a program has not got the last weights yet."""
    model, before = made(), made()
    follower = followed(model)
    agree(follower, model, X)
    agree(follower, model, X, as_dict=True)
    for each in (model, before):
        _write(each)
    agree(follower, model, X)
    results = {}

    def call(**options):
        with torch.no_grad():
            results[bool(options)] = follower(X, **options)

    threads = [threading.Thread(target=call, kwargs=each) for each in ({}, {"as_dict": True})]
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


def test_first_calls_in_several_threads_compile_once_and_eager_calls_go_on():
    """Exporting does not touch the model that others run."""
    model, other = made(), made()
    follower = followed(model)
    wrong = []

    def call(function):
        try:
            for _ in range(20):
                agree(function, other, X)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(each,)) for each in (follower, follower, model)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong
    assert 1 == len(programs(follower))


@pytest.mark.parametrize(
    "model", [None, torch.relu, torch.export.export(nn.Linear(2, 2), (torch.rand(1, 2),))]
)
def test_only_modules_with_python_code_are_followed(model):
    """The error says so."""
    with pytest.raises(InputError, match=r"follow\(\) takes a torch\.nn\.Module"):
        torchtrt.follow(model)


def test_settings_are_checked_at_once():
    """Not in the first call."""
    with pytest.raises(SettingsError):
        torchtrt.follow(made(), min_block_sise=1)


def test_wrong_arguments_raise_what_the_model_raises():
    """Its own message."""
    follower = followed(made())
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"), torch.no_grad():
        follower(X, y=1)
    with pytest.warns(FollowWarning), pytest.raises(RuntimeError), torch.no_grad():
        follower(torch.rand(3, 5))
