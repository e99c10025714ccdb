"""Engines without weights in their plans: where the weights come from, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

import torchtrt
from torchtrt.errors import (
    EngineError,
    InputError,
    RefitError,
    SettingsError,
    UnreadableFileError,
    UnsupportedProgramError,
)

X = torch.rand(3, 64)
OPTIONS = {"min_block_size": 1, "torch_executed_ops": "aten.atan2"}


class Model(torch.nn.Module):
    """Weights as they are, folded, tied and viewed; constants of the code; a weight that PyTorch reads."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)
        self.norm.running_var.uniform_(0.5, 2)
        self.second = torch.nn.Linear(64, 64)
        self.tied = torch.nn.Linear(64, 64, bias=False)
        self.tied.weight = self.first.weight
        self.shift = torch.nn.Parameter(torch.rand(3))
        self.register_buffer("table", torch.arange(64.0), persistent=False)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = self.tied(self.second(x) * self.table) + torch.arange(64)
        return x[:, torch.tensor([1, 5, 60])] + torch.atan2(x[:, :3], self.shift)


@pytest.fixture(autouse=True)
def _version(use_tensorrt):
    use_tensorrt("reference@10.16.1")


@pytest.fixture
def use_tensorrt():
    """Selects a TensorRT for the test."""
    selected = []

    def use(version):
        selected.append(torchtrt.use_tensorrt(version))
        selected[-1].__enter__()

    yield use
    for context in reversed(selected):
        context.__exit__(None, None, None)


def stripped(model, **settings):
    options = {"strip_engine_weights": True, **OPTIONS, **settings}
    return torchtrt.compile(model, [X], **options)


def plans(compiled):
    return sum(block.plan_bytes for block in compiled.report.blocks)


def assert_like(compiled, model):
    torch.testing.assert_close(compiled(X), model(X))


@pytest.mark.parametrize("immutable", [True, False])
def test_plans_have_no_weights_and_engines_compute_with_the_models(immutable):
    """The settings of a plan with weights change nothing else."""
    model = Model().eval()
    whole = torchtrt.compile(model, [X], **OPTIONS, immutable_weights=immutable)
    compiled = stripped(model, immutable_weights=immutable)
    weights = 64 * 64 * 4 * 2
    assert plans(whole) > weights
    assert plans(compiled) < plans(whole) - weights
    assert_like(compiled, model)


@pytest.mark.parametrize(
    "made", [copy.deepcopy, lambda compiled: pickle.loads(pickle.dumps(compiled))]
)
def test_copies_and_pickles_have_the_weights(made):
    """Unlike a file of torchtrt.save."""
    model = Model().eval()
    compiled = made(stripped(model))
    expected = model(X)
    del model
    torch.testing.assert_close(compiled(X), expected)


def test_a_model_that_is_gone_or_changed_is_never_computed_with(tmp_path):
    """The engines keep the tensors of a model that is dropped, and say if they change."""
    model = Model().eval()
    compiled, expected = stripped(model), model(X)
    with torch.no_grad():
        model.second.weight.add_(1)
    with pytest.raises(EngineError, match=r"'second.weight' has changed"):
        compiled(X)
    with pytest.raises(EngineError, match=r"'second.weight' has changed"):
        torchtrt.save(compiled, tmp_path / "model.pt2")
    other = Model().eval()
    compiled = stripped(other)
    del other
    torch.testing.assert_close(compiled(X), expected)


@pytest.fixture
def saved(tmp_path):
    """Saves a stripped model; returns it, its file, and a safetensors file of its weights."""

    def save(**settings):
        model, path = Model().eval(), tmp_path / "model.pt2"
        torchtrt.save(stripped(model, **settings), path)
        weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        del weights["tied.weight"]  # as checkpoints have it
        save_file(weights, tmp_path / "model.safetensors")
        return model, path, tmp_path / "model.safetensors"

    return save


@pytest.mark.parametrize("immutable", [True, False])
def test_a_saved_model_gets_its_weights_where_it_is_loaded(saved, tmp_path, immutable):
    """From each form of the same weights; the file has none of an engine's."""
    model, path, file = saved(immutable_weights=immutable)
    whole = torchtrt.compile(model, [X], **OPTIONS, immutable_weights=immutable)
    torchtrt.save(whole, tmp_path / "whole.pt2")
    weights = 64 * 64 * 4 * 2
    assert path.stat().st_size < (tmp_path / "whole.pt2").stat().st_size - weights / 2
    exported = torch.export.export(model, (X,))
    for source in (model, model.state_dict(), exported, file, str(file)):
        assert_like(torchtrt.load(path, weights=source), model)
    loaded = torchtrt.load(path, weights=model)
    torchtrt.save(loaded, tmp_path / "again.pt2")
    assert_like(torchtrt.load(tmp_path / "again.pt2", weights=file), model)


def test_an_index_names_the_files_of_a_checkpoint(saved, tmp_path):
    """As checkpoints of large models have it."""
    model, path, _ = saved()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    names = sorted(weights)
    save_file({name: weights[name] for name in names[:4]}, tmp_path / "1.safetensors")
    save_file({name: weights[name] for name in names[4:]}, tmp_path / "2.safetensors")
    files = ", ".join(f'"{name}": "{1 if name in names[:4] else 2}.safetensors"' for name in names)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(f'{{"weight_map": {{{files}}}}}')
    assert_like(torchtrt.load(path, weights=index), model)


def test_a_weight_is_read_from_the_file_that_the_index_names(saved, tmp_path):
    """Another file may have an earlier one of the same name."""
    model, path, _ = saved(immutable_weights=False)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    save_file(weights, tmp_path / "1.safetensors")
    save_file({"second.weight": torch.zeros(64, 64)}, tmp_path / "2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    named = {**dict.fromkeys(weights, "1.safetensors"), "other": "2.safetensors"}
    index.write_text(json.dumps({"weight_map": named}))
    assert_like(torchtrt.load(path, weights=index), model)


def test_engines_that_take_other_weights_load_with_them(saved):
    """PyTorch's part of the model gets them too, and a later refit as well."""
    _, path, _ = saved(immutable_weights=False)
    other, third = Model(1).eval(), Model(2).eval()
    loaded = torchtrt.load(path, weights=other)
    assert_like(loaded, other)
    assert_like(torchtrt.refit_module_weights(loaded, third), third)
    assert_like(loaded, other)
    torchtrt.refit_module_weights(loaded, third.state_dict(), in_place=True)
    assert_like(loaded, third)


GIVEN = {"model": lambda model: model, "state dict": lambda model: model.state_dict()}


@pytest.mark.parametrize("form", GIVEN)
def test_weights_that_change_before_the_engine_reads_them_are_an_error(saved, form):
    """Engines read them at the first call."""
    model, path, _ = saved(immutable_weights=False)
    loaded = torchtrt.load(path, weights=GIVEN[form](model))
    refitted = torchtrt.refit_module_weights(loaded, GIVEN[form](model))
    with torch.no_grad():
        model.second.weight.add_(1)
    for compiled in (loaded, refitted):
        with pytest.raises(
            EngineError, match=r"'second.weight' has changed since the engine got it"
        ):
            compiled(X)


@pytest.mark.parametrize("way", ["data", "numpy"])
def test_uncounted_writes_before_an_immutable_engine_reads_its_weights_are_an_error(way, tmp_path):
    """TensorRT has optimized the engine for other values, in this process or in another; a file keeps none either."""
    model = Model().eval()
    made = stripped(model)
    torchtrt.save(made, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2", weights=model)
    weight = model.second.weight.data if way == "data" else model.second.weight.detach().numpy()
    weight *= 2

    for call in (lambda: made(X), lambda: loaded(X), lambda: torchtrt.save(made, tmp_path / "b")):
        with (
            torch.no_grad(),
            pytest.raises(EngineError, match=r"'second.weight' has changed since"),
        ):
            call()


def test_weights_that_replace_those_of_inference_mode_are_read(saved):
    """The digests of the old ones are not theirs."""
    _, path, _ = saved(immutable_weights=False)
    with torch.inference_mode():
        state = {name: value.clone() for name, value in Model(1).state_dict().items()}
    model = Model(2).eval()
    loaded = torchtrt.load(path, weights=state)
    assert_like(loaded, Model(1).eval())

    torchtrt.refit_module_weights(loaded, model, in_place=True)

    assert_like(loaded, model)


def test_writes_in_inference_mode_are_noticed(saved):
    """PyTorch has no version of such tensors."""
    model, path, _ = saved(immutable_weights=False)
    with torch.inference_mode():
        weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        changed, same = (torchtrt.load(path, weights=weights) for _ in range(2))
        assert_like(same, model)
        weights["second.weight"].add_(1)
        with pytest.raises(EngineError, match=r"'second.weight' has changed"):
            changed(X)


def without(model, name):
    return {position: value for position, value in model.state_dict().items() if position != name}


@pytest.mark.parametrize(
    ("weights", "error", "said"),
    [
        (
            lambda model: None,
            RefitError,
            r"no weights for its engines.*torchtrt.load\(path, weights",
        ),
        (lambda model: {}, RefitError, "'second.bias' is missing"),
        (lambda model: without(model, "second.bias"), RefitError, "'second.bias' is missing"),
        (
            lambda model: {**model.state_dict(), "second.bias": torch.rand(3)},
            RefitError,
            r"'second.bias' is float32 \[3\], and was float32 \[64\]",
        ),
        (
            lambda model: {**model.state_dict(), "second.bias": torch.rand(64).double()},
            RefitError,
            "'second.bias' is float64",
        ),
        (
            lambda model: {**model.state_dict(), "third": torch.rand(3)},
            RefitError,
            "'third' is no weight of the model",
        ),
        (
            lambda model: {**model.state_dict(), "tied.weight": torch.rand(64, 64)},
            RefitError,
            "'tied.weight' has other values than 'first.weight', with which it was one weight",
        ),
        (
            lambda model: Model(1).eval(),
            RefitError,
            "'second.weight'.* are not those that the engine of .* was built with",
        ),
        (
            lambda model: {**model.state_dict(), "shift": torch.rand(3)},
            RefitError,
            "'shift.* has other values than those that the model was compiled with",
        ),
        (lambda model: 3, RefitError, "not as a int"),
        (lambda model: "nothing.safetensors", UnreadableFileError, "No such file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_that_do_not_fit_are_refused(saved, weights, error, said):
    """Before anything runs, and with each of them."""
    model, path, _ = saved()
    with pytest.raises(error, match=said):
        torchtrt.load(path, weights=weights(model))


def test_a_file_that_holds_no_weights_is_refused(saved, tmp_path):
    """Neither a damaged one nor one of another kind."""
    _, path, file = saved()
    (tmp_path / "cut.safetensors").write_bytes(file.read_bytes()[:-100])
    (tmp_path / "other.json").write_text("[]")
    for name in ("cut.safetensors", "other.json", "model.pt2"):
        with pytest.raises(UnreadableFileError, match=f"{name} is no safetensors file"):
            torchtrt.load(path, weights=tmp_path / name)


def test_weights_for_a_file_that_has_them_are_refused(tmp_path):
    """They would be ignored."""
    model = Model().eval()
    torchtrt.save(torchtrt.compile(model, [X], **OPTIONS), tmp_path / "model.pt2")
    with pytest.raises(InputError, match="The engines in the file have their weights"):
        torchtrt.load(tmp_path / "model.pt2", weights=model)


def test_pytorch_opens_the_file_and_a_call_says_what_is_missing(saved):
    """The operator of a saved program has no way to give weights."""
    _, path, _ = saved()
    program = torch.export.load(path)
    with pytest.raises(EngineError, match=r"has no weights: .*torchtrt.load\(path, weights"):
        program.module()(X)


def test_a_stripped_model_is_no_plan_for_other_tools(tmp_path):
    """They have no weights to give to it."""
    model = torch.nn.Linear(64, 64).eval()
    with pytest.raises(UnsupportedProgramError, match="Its engine has no weights"):
        torchtrt.export_engine(stripped(model, torch_executed_ops=()), tmp_path / "model.plan")
    assert not list(tmp_path.iterdir())


def test_immutable_weights_stay_immutable():
    """The engine is optimized for their values, although the plan does not have them."""
    compiled = stripped(Model().eval())
    with pytest.raises(RefitError, match="immutable_weights=False"):
        torchtrt.refit_module_weights(compiled, Model(1).eval())


def test_the_cache_keeps_plans_without_weights(tmp_path):
    """One of immutable weights serves these weights only, the other one all."""
    old, new = Model().eval(), Model(1).eval()

    def hits(model, **settings):
        compiled = stripped(model, engine_cache=tmp_path, **settings)
        assert_like(compiled, model)
        return [block.cached for block in compiled.report.blocks]

    assert not any(hits(old))
    assert all(hits(old))
    assert all(hits(Model().eval()))
    assert not all(hits(new))
    size = sum(file.stat().st_size for file in tmp_path.glob("engines/*"))
    torchtrt.compile(old, [X], **OPTIONS, engine_cache=tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.glob("engines/*")) > size + 64 * 64 * 4
    assert not any(hits(old, immutable_weights=False))
    assert all(hits(new, immutable_weights=False))
    assert all(hits(old, immutable_weights=False))


class Shifted(torch.nn.Module):
    """A weight of which autocast asks whether float16 holds it."""

    def __init__(self, shift):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(64))
        self.shift = torch.nn.Parameter(torch.tensor([shift]))

    def forward(self, x):
        return x @ self.weight + self.shift


def test_a_number_of_a_weight_that_is_compiled_in_must_stay(tmp_path):
    """Of engines that take other weights: of the others every weight must."""
    settings = {"immutable_weights": False, "torch_executed_ops": (), "autocast": torch.float16}
    path = tmp_path / "model.pt2"
    torchtrt.save(stripped(Shifted(1.0).eval(), **settings), path)
    small, large = Shifted(2.0).eval(), Shifted(1e6).eval()
    torch.testing.assert_close(
        torchtrt.load(path, weights=small)(X), small(X), atol=1e-2, rtol=1e-2
    )
    with pytest.raises(RefitError, match="Values that follow from 'shift' are compiled into"):
        torchtrt.load(path, weights=large)


def test_settings_that_need_more_than_there_is_are_refused():
    """Before anything is built, by the version."""
    said = r"strip_engine_weights=True.* from version 10.0 on.*8\.6\.0"
    with torchtrt.use_tensorrt("reference@8.6.0"), pytest.raises(SettingsError, match=said):
        stripped(Model().eval())


def test_a_followed_model_refits_engines_without_weights():
    """A change of the model's weights reaches the engines, as of any others."""
    model = Model().eval()
    followed = torchtrt.follow(model, **OPTIONS, strip_engine_weights=True)
    with torch.no_grad():
        assert_like(followed, model)
        model.second.weight.mul_(2)
        assert_like(followed, model)
        model.load_state_dict(Model(1).state_dict())
        assert_like(followed, model)


def test_explain_and_verification_do_as_without_it():
    """A dry run has no plan, and the reference verifies a network with its weights."""
    model = Model().eval()
    report = torchtrt.explain(model, [X], strip_engine_weights=True)
    assert len(report.blocks) == len(torchtrt.explain(model, [X]).blocks)
    compiled = stripped(model, verify="reference")
    assert compiled.report.verified
    assert_like(compiled, model)
