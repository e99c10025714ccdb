"""Texts of the user's own in a saved model."""

import copy
import zipfile

import pytest
import torch

import torchtrt
from torchtrt.errors import InputError, UnreadableFileError
from torchtrt_runtime import inspect_file

TEXTS = {"labels.json": '["cat", "h\u00fchner"]', "notes/empty.txt": ""}


@pytest.fixture
def compiled():
    """A compiled model."""
    return torchtrt.compile(torch.nn.ReLU().eval(), [torch.rand(3)], min_block_size=1)


def test_texts_come_back_where_the_file_is_read(compiled, tmp_path):
    """By load, by inspect_file and by PyTorch; the model's own report is unchanged by them."""
    torchtrt.save(compiled, tmp_path / "plain.pt2")
    torchtrt.save(compiled, tmp_path / "model.pt2", extra_files=TEXTS)
    loaded, read = torchtrt.load(tmp_path / "model.pt2"), dict.fromkeys(TEXTS, "")
    torch.export.load(tmp_path / "model.pt2", extra_files=read)

    assert TEXTS == loaded.extra_files == inspect_file(tmp_path / "model.pt2")["extra_files"]
    assert TEXTS == {name: read[name] for name in TEXTS}
    assert {} == compiled.extra_files == inspect_file(tmp_path / "plain.pt2")["extra_files"]
    assert compiled.report == loaded.report
    assert TEXTS == copy.deepcopy(loaded).extra_files


def test_a_loaded_model_keeps_its_texts_unless_it_gets_others(compiled, tmp_path):
    """Others take the place of all of them."""
    torchtrt.save(compiled, tmp_path / "model.pt2", extra_files=TEXTS)
    loaded = torchtrt.load(tmp_path / "model.pt2")
    for extra, expected in ((None, TEXTS), ({"a": "b"}, {"a": "b"}), ({}, {})):
        torchtrt.save(loaded, tmp_path / "again.pt2", extra_files=extra)
        assert expected == torchtrt.load(tmp_path / "again.pt2").extra_files


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["labels"], "is a list"),
        ({"data": b"bytes"}, "no text that UTF-8"),
        ({"data": "\ud800"}, "no text that UTF-8"),
        *(({name: ""}, "Give a relative path") for name in (
            "torchtrt.json", "", "/etc/passwd", "a//b", "../a", "a/./b", "a\\b", "a\0b", "\ud800", 3
        )),
    ],
)  # fmt: skip
def test_what_is_no_text_with_a_usable_name_is_refused(compiled, tmp_path, files, message):
    """Before anything is written."""
    with pytest.raises(InputError, match=message):
        torchtrt.save(compiled, tmp_path / "model.pt2", extra_files=files)
    assert not (tmp_path / "model.pt2").exists()


def test_a_file_whose_text_is_none_is_damaged(compiled, tmp_path):
    """Another program may have put bytes there."""
    path, changed = tmp_path / "model.pt2", tmp_path / "changed.pt2"
    torchtrt.save(compiled, path, extra_files=TEXTS)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as made:
        for name in source.namelist():
            made.writestr(name, b"\xff" if name.endswith("labels.json") else source.read(name))
    for read in (torchtrt.load, inspect_file):
        with pytest.raises(UnreadableFileError, match="an extra file is no text"):
            read(changed)
