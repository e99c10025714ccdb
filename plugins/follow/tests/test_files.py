"""Programs of followed models in folders: another process takes them without an export."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import exports_of_followed
from torchtrt.errors import FollowWarning, InputError, UnreadableFileError, UnwritableFileError

X = torch.rand(3, 4)


class Block(nn.Module):
    """Weights, a number, an unused text, and a tensor that is no weight."""

    def __init__(self, width=8, gain=2.0, label="a"):
        super().__init__()
        self.first, self.second = nn.Linear(4, width), nn.Linear(width, 4)
        self.gain, self.options = gain, {"label": label, "names": {"x", "y"}}

    def forward(self, x, mask=None):
        """Returns as many rows."""
        y = self.second(self.first(x).relu()) * self.gain + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return y if mask is None else y * mask


class Counter(Block):
    """Writes to a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        """Counts its calls."""
        self.calls.add_(1)
        return super().forward(x)


def followed(seed=0, immutable=False, stripped=False, **options):
    """Returns a model followed, for 1 to 16 rows."""
    torch.manual_seed(seed)
    rows = {"x": {0: (1, 16)}, "mask": {0: (1, 16)}}
    return torchtrt.follow(
        Block(**options).eval(),
        dynamic_shapes=rows,
        min_block_size=1,
        immutable_weights=immutable,
        strip_engine_weights=stripped,
    )


def agree(model, *inputs):
    """Compares a call with eager PyTorch."""
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), model.torchtrt.model(*inputs))


@pytest.fixture
def exported(monkeypatch):
    """The exports since the list was cleared."""
    return exports_of_followed(monkeypatch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The programs of a model for two kinds of calls."""
    model, folder = followed(), tmp_path_factory.mktemp("saved")
    agree(model, X)
    agree(model, X, torch.rand(3, 1))
    model.torchtrt.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the programs."""
    return shutil.copytree(saved, tmp_path / "programs")


@pytest.mark.parametrize("immutable", [False, True])
def test_programs_without_weights_take_the_models(immutable, exported, tmp_path):
    """The folder has neither of them, and engines that take others get those of another model."""
    model = followed(immutable=immutable, stripped=True)
    agree(model, X)
    model.torchtrt.save(tmp_path)
    exported.clear()

    for seed in (0,) if immutable else (0, 1):
        other = followed(seed, immutable=immutable, stripped=True)
        other.torchtrt.load(tmp_path)
        agree(other, X)

    assert not exported


@pytest.mark.parametrize("seed", [0, 1])
def test_a_loaded_program_runs_without_an_export(folder, exported, seed):
    """With the weights of the model, whatever those that were saved."""
    model = followed(seed)
    model.torchtrt.load(folder)

    assert 2 == len(model.torchtrt.programs)
    for rows in (3, 9):
        agree(model, torch.rand(rows, 4))
        agree(model, torch.rand(rows, 4), torch.rand(rows, 1))
    with torch.no_grad():
        model.first.weight.mul_(2)
    agree(model, X)

    assert [] == exported
    assert 2 == len(model.torchtrt.programs)


def test_the_weights_of_the_last_call_are_saved_again(folder, tmp_path, exported):
    """A loaded model is saved as any other, also where its weights have changed since."""
    model = followed()
    model.torchtrt.load(folder)
    agree(model, X)
    with torch.no_grad():
        model.first.weight.mul_(2)
    model.torchtrt.save(tmp_path / "again")

    again = followed(seed=3)
    again.torchtrt.load(tmp_path / "again")
    agree(again, X)
    assert [] == exported


@pytest.mark.parametrize("calls", [0, 1])
def test_programs_that_no_call_has_used_are_saved_again(folder, tmp_path, exported, calls):
    """A loaded model has them all, with its own weights, however many kinds of calls it has had."""
    model = followed(seed=1)
    model.torchtrt.load(folder)
    for _ in range(calls):
        agree(model, X)
    model.torchtrt.save(tmp_path / "again")

    again = followed(seed=1)
    again.torchtrt.load(tmp_path / "again")
    assert 2 == len(again.torchtrt.programs)
    for module in (model, again):
        agree(module, X)
        agree(module, X, torch.rand(3, 1))
    assert [] == exported


@pytest.mark.filterwarnings("error")
def test_a_registry_of_hooks_is_state_once_it_has_one(tmp_path, exported):
    """Models of diffusers make an empty one in their first call."""
    hooks = pytest.importorskip("diffusers.hooks.hooks")
    model = followed()
    registry = hooks.HookRegistry.check_if_exists_or_initialize(model.torchtrt.model)
    registry._child_registries_cache = []
    agree(model, X)
    model.torchtrt.save(tmp_path)
    exported.clear()

    other = followed()
    other.torchtrt.load(tmp_path)
    agree(other, X)
    assert [] == exported

    other = followed()
    inner = hooks.HookRegistry.check_if_exists_or_initialize(other.torchtrt.model.first)
    inner.register_hook(hooks.ModelHook(), "none")
    with pytest.warns(FollowWarning, match="may be another"):
        other.torchtrt.load(tmp_path)
    with pytest.warns(FollowWarning, match="'first' has a forward that was put over"):
        agree(other, X)


def test_other_calls_are_compiled_when_they_come(folder, exported):
    """The sizes that the file lacks, and other kinds of calls."""
    model = followed()
    model.torchtrt.load(folder)
    agree(model, X.double().float()[None])

    assert exported


def test_engines_with_weights_compiled_in_take_no_others(tmp_path, exported):
    """The message names one that differs."""
    model = followed(immutable=True)
    agree(model, X)
    model.torchtrt.save(tmp_path)
    exported.clear()

    same = followed(immutable=True)
    same.torchtrt.load(tmp_path)
    agree(same, X)
    assert [] == exported
    with pytest.raises(
        InputError, match=r"weights compiled in, and 'first\.bias' of the model is another"
    ):
        followed(seed=1, immutable=True).torchtrt.load(tmp_path)


def test_engines_of_another_model_are_refused(folder):
    with pytest.raises(
        InputError,
        match=r"not for this Block. They differ in the form of first\.weight: .*\[9, 4\]",
    ):
        followed(width=9).torchtrt.load(folder)
    other = torchtrt.follow(nn.Linear(4, 4).eval())
    match = (
        "not for this Linear. They differ in the modules of the model: none here, first .* there"
    )
    with pytest.raises(InputError, match=match):
        other.torchtrt.load(folder)


@pytest.mark.parametrize(
    ("options", "kept"), [({"label": "b"}, True), ({"gain": 3.0}, False)], ids=["unused", "used"]
)
def test_a_model_in_another_state_is_exported_and_compared(folder, exported, options, kept):
    """Only if the program is the same, the engines run it."""
    model = followed(**options)
    with pytest.warns(FollowWarning, match=next(iter(options))):
        model.torchtrt.load(folder)
    agree(model, X)

    assert 1 == len(exported)
    assert (2 if kept else 3) == len(model.torchtrt.programs)


def test_what_has_no_programs_is_not_saved(tmp_path):
    """No call, or one that PyTorch runs."""
    with pytest.raises(InputError, match="none of its calls has been compiled"):
        followed().torchtrt.save(tmp_path)
    with pytest.raises(InputError, match=r"has no followed\.json"):
        followed().torchtrt.load(tmp_path)


def test_a_program_that_writes_to_weights_is_not_saved(folder):
    """The buffer is the model's own, and a file has none of it. What the folder had stays."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    model = torchtrt.follow(Counter().eval(), min_block_size=1)
    with torch.no_grad():
        model(X)
    with pytest.raises(InputError, match=r"writes to its weights \(calls\)"):
        model.torchtrt.save(folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is damaged"), ("[]", "another format"), (None, "another format")]
)
def test_a_folder_of_another_form_is_an_error(folder, text, message):
    file = folder / "followed.json"
    if text is None:
        text = json.dumps({**json.loads(file.read_text()), "format": 9})
    file.write_text(text)
    with pytest.raises(UnreadableFileError, match=message):
        followed().torchtrt.load(folder)


@pytest.mark.parametrize("name", ["program-0.pt2", "constants-1.pt"])
def test_a_file_that_was_not_saved_with_the_others_is_refused(folder, name):
    """Engines of other weights would compute with these, and the description has them as the model's."""
    part = folder / name
    whole = part.read_bytes()
    for content in ((folder / "program-1.pt2").read_bytes(), whole[:-20], None):
        part.unlink()
        if content is not None:
            part.write_bytes(content)
        message = (
            rf"{name}.* (not the file that was saved with|cannot be read).* Copy the whole folder"
        )
        with pytest.raises(UnreadableFileError, match=message):
            followed().torchtrt.load(folder)


@pytest.mark.parametrize("key", ["model", "weights", "programs", "files"])
def test_a_description_that_was_changed_is_refused(folder, key):
    file = folder / "followed.json"
    content = json.loads(file.read_text())
    for changed in ({**content, key: []}, {n: entry for n, entry in content.items() if n != key}):
        file.write_text(json.dumps(changed))
        with pytest.raises(UnreadableFileError, match="its checksum is another"):
            followed().torchtrt.load(folder)


@pytest.mark.parametrize("position", [None, 5, b"folder"])
def test_a_folder_is_a_path(saved, position):
    for method in (followed().torchtrt.save, followed().torchtrt.load):
        with pytest.raises(InputError, match="The folder comes as a path"):
            method(position)


def test_a_folder_that_cannot_be_made_is_an_error(folder, tmp_path):
    model = followed()
    model.torchtrt.load(folder)
    agree(model, X)
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableFileError, match="cannot be created"):
        model.torchtrt.save(tmp_path / "file")
