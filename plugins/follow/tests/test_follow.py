"""Followed models: what eager PyTorch computes, whatever changes between the calls."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from plugins.follow.tests.followed import Block, X, agree, followed, made, programs
from torchtrt.errors import (
    FollowWarning,
    FullCompilationError,
    InputError,
    NoEngineWarning,
    SettingsError,
)


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
    with pytest.warns(NoEngineWarning):
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


def test_a_model_that_changes_with_each_call_causes_a_warning():
    """It names the attribute; the program stays the same."""
    model = made()
    follower = followed(model)
    for epoch in range(16):
        model.epoch = epoch
        agree(follower, model, X)
    model.epoch = 16
    with pytest.warns(FollowWarning, match="has had 16 structures.*'epoch'"):
        agree(follower, model, X)
    assert 1 == len(programs(follower))


def test_training_and_gradients_run_in_pytorch():
    """Gradients reach the model's parameters; eval mode with gradients warns once."""
    model = made()
    follower = followed(model)
    follower.train()
    follower(X).sum().backward()
    assert model.first.weight.grad is not None
    follower.eval()
    with pytest.warns(FollowWarning, match="may need gradients"):
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
    strict = followed(model, fallback=False)
    for _ in range(2):
        with pytest.raises(Exception, match="could not trace"), torch.no_grad():
            strict(X)


def test_a_call_that_the_model_refuses_leaves_nothing_behind():
    """Before, PyTorch ran all later calls of other sizes, and ranges included the size that was refused."""

    class Picky(Block):
        def forward(self, x):
            if x.shape[0] == 9:
                raise ValueError("nine rows")
            return super().forward(x)

    model = made(Picky)
    follower = followed(model)
    for rows in (9, 3, 9, 2):
        x = torch.rand(rows, 4)
        if rows == 9:
            with pytest.raises(ValueError, match="nine rows"), torch.no_grad():
                follower(x)
        else:
            agree(follower, model, x)
    (program,) = programs(follower)
    assert program.report.inputs == ["x: float32 [2 to 4, 4]"]


def test_defaults_before_further_arguments_keep_their_place():
    """An argument that equals its default is left out, unless others by place follow it."""

    class Summed(nn.Module):
        def forward(self, x, scale=None, /, *others, **named):
            x = x if scale is None else x * scale
            return sum(others, x) - sum(named.values())

    model = made(Summed)
    follower = followed(model)
    for arguments in ((X,), (X, None), (X, None, X), (X, 2, X), (X, None, X, X)):
        agree(follower, model, *arguments)
        agree(follower, model, *arguments, named=X)
    assert len(programs(follower)) == 8


def test_the_number_of_programs_has_a_limit():
    """The warning names the arguments; with ``fallback=False`` it is an error."""

    class Scaled(nn.Module):
        def forward(self, x, step):
            return x * step + step

    model = made(Scaled)
    follower = followed(model, max_programs=2)
    agree(follower, model, X, 1)
    agree(follower, model, X, 2)
    with pytest.warns(FollowWarning, match=r"\(float32\[3, 4\], 3\).*max_programs"):
        agree(follower, model, X, 3)
    agree(follower, model, X, 2)
    assert 2 == len(programs(follower))
    strict = followed(model, max_programs=1, fallback=False)
    agree(strict, model, X, 1)
    with pytest.raises(InputError, match="max_programs"), torch.no_grad():
        strict(X, 2)
    with pytest.raises(SettingsError, match="max_programs"):
        followed(model, max_programs=0)


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


def test_a_method_that_makes_a_model_of_the_class_makes_no_followed_one():
    """A slice of a sequential model is another model."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    part = torchtrt.follow(model)[:2]
    assert type(part) is nn.Sequential
    torch.testing.assert_close(part(X), model[:2](X))


def test_what_cannot_be_followed_is_refused_at_once():
    """The errors say what to do instead."""
    with pytest.raises(InputError, match="Call the model once"):
        torchtrt.follow(nn.LazyLinear(4))
    for shapes in ([1], "x", 5):
        with pytest.raises(InputError, match="dynamic_shapes is a dictionary"):
            torchtrt.follow(nn.Linear(4, 4), dynamic_shapes=shapes)


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


def test_calls_without_any_engine_cause_one_warning():
    """Also behind a program that has one."""
    model = nn.Linear(4, 4).eval()
    follower = followed(model)
    agree(follower, model, X)
    model.double()
    with pytest.warns(NoEngineWarning):
        agree(follower, model, X.double())
    agree(follower, model, X.double()[None])
    assert 1 == len(programs(follower))


def test_without_fallback_a_call_without_any_engine_is_an_error():
    """It names the ops, as that of full compilation does. A call that computes nothing, or is tuned, needs none."""

    class Gamma(nn.Module):
        def forward(self, x, returned=False):
            return x if returned else torch.igamma(x, x)

    model = made(Gamma)
    follower = followed(model, fallback=False)
    for _ in range(2):
        with pytest.raises(
            FullCompilationError, match=r"(?s)1 of .*igamma.*drop fallback=False"
        ) as error:
            agree(follower, model, X)
        assert ["aten.igamma.default"] == [op.op for op in error.value.missing]
    agree(follower, model, X, returned=True)
    agree(followed(model, fallback=False, tune=True), model, X)
    assert [] == programs(follower)


def test_without_fallback_a_program_refuses_other_memory_without_a_warning():
    """Of a model that reads strides. With fallback, PyTorch runs such a call."""

    class Reading(nn.Module):
        def forward(self, x):
            return x.sin() * (2 if x.is_contiguous() else 3)

    model, square = made(Reading), torch.rand(4, 4)
    follower, strict = followed(model), followed(model, fallback=False)
    for compiled in (follower, strict):
        agree(compiled, model, square)
    with pytest.warns(FollowWarning, match="strides"):
        agree(follower, model, square.t())
    with pytest.raises(InputError, match="strides"):
        agree(strict, model, square.t())


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

    threads = [
        threading.Thread(target=call, args=(module,)) for module in (follower, follower, model)
    ]
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
    with pytest.raises(SettingsError, match="Did you mean 'min_block_size'"):
        torchtrt.follow(made(), min_block_sise=1)
    with pytest.raises(SettingsError, match="Did you mean 'fallback'"):
        torchtrt.follow(made(), falback=False)


def test_wrong_arguments_raise_what_the_model_raises():
    """Its own message."""
    follower = followed(made())
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"), torch.no_grad():
        follower(X, y=1)
    with pytest.raises(RuntimeError), torch.no_grad():
        follower(torch.rand(3, 5))


def test_record_compilation_records_each_program_of_a_followed_model(tmp_path):
    """As it does those of ``torchtrt.compile``."""
    model = made()
    follower = followed(model)
    with torchtrt.record_compilation(tmp_path / "record"):
        agree(follower, model, X)
        agree(follower, model, X, as_dict=True)
    assert 2 == len([*tmp_path.rglob("compilation.log")])
