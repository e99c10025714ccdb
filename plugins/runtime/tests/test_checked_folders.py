"""Folders of saved files are checked while they are read, once, and in any order."""

import contextlib
import io
import os

import pytest
import torch

import torchtrt
from torchtrt.errors import UnreadableFileError, UnwritableFileError
from torchtrt_runtime.serialization.checked_file import CheckedFile, checksums_of
from torchtrt_runtime.serialization.folders import NewFolder, read_description


@pytest.fixture
def folder(tmp_path):
    """A compiled model, tensors and bytes, in blocks of 100 bytes."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    new = NewFolder(tmp_path / "all.json", 100)
    with new.part("a.pt2") as path:
        torchtrt.save(torchtrt.compile(model, [torch.ones(2, 4)], min_block_size=1), path)
    with new.part("b.pt") as path:
        torch.save({"x": torch.arange(300)}, path)
    (tmp_path / "c").write_bytes(bytes(range(250)))
    (tmp_path / "empty").touch()
    new.add("c")
    new.add("empty")
    new.describe({"key": [1]}, 1)
    return tmp_path


def read(folder):
    """Reads each file as its users do."""
    saved = read_description(folder / "all.json", 1, "Save it again")
    assert {"key": [1]} == saved.content
    with saved.open("a.pt2") as file:
        torchtrt.load(file)
    with saved.open("b.pt") as file:
        assert torch.equal(torch.arange(300), torch.load(file, weights_only=True)["x"])
    saved.check(["c", "empty"])


def test_a_file_is_read_as_any_other(folder):
    """By places from its start and its end, and beyond its end."""
    with read_description(folder / "all.json", 1, "").open("c") as file:
        assert bytes(range(90, 210)) == (file.seek(90), file.read(120))[1]
        assert bytes(range(240, 250)) == (file.seek(-10, os.SEEK_END), file.read(99))[1]
        assert b"" == (file.seek(9, os.SEEK_CUR), file.read(1))[1]
        assert bytes(range(250)) == (file.seek(0), file.read())[1]
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)


@pytest.mark.parametrize("name", ["a.pt2", "b.pt", "c"])
def test_no_changed_byte_is_read(folder, name):
    """Wherever it is: among weights, names and what is not read."""
    part = folder / name
    whole = part.read_bytes()
    for offset in [*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1]:
        changed = bytearray(whole)
        changed[offset] ^= 1
        part.write_bytes(changed)
        with pytest.raises(UnreadableFileError, match=rf"{name} is not the file that was saved"):
            read(folder)
    part.write_bytes(whole)
    read(folder)


@pytest.mark.parametrize("name", ["a.pt2", "b.pt", "c", "empty"])
def test_a_longer_a_shorter_and_a_missing_file_are_refused_before_one_is_read(folder, name):
    part = folder / name
    whole = part.read_bytes()
    for content in (whole + b"\0", whole[:-1] or b"\0", None):
        part.unlink()
        if content is not None:
            part.write_bytes(content)
        reason = "cannot be read: No such file" if content is None else "is not the file that was"
        with pytest.raises(UnreadableFileError, match=rf"{name}.*{reason}.*Copy the whole folder"):
            read_description(folder / "all.json", 1, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are those of Unix")
def test_a_pipe_in_the_place_of_a_file_is_refused(folder):
    """Opening it would wait for a writer."""
    (folder / "empty").unlink()
    os.mkfifo(folder / "empty")

    with pytest.raises(UnreadableFileError, match="empty is not the file that was saved"):
        read_description(folder / "all.json", 1, "")


class Counting(io.FileIO):
    """A file that counts the bytes that are read."""

    count = 0

    def read(self, size=-1, /):
        content = super().read(size)
        self.count += len(content)
        return content


def test_a_large_model_is_read_once(tmp_path):
    """Of each file as many bytes as it has, and a few blocks again, between which archives go to and fro."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(30))).eval()
    path = tmp_path / "a.pt2"
    torchtrt.save(torchtrt.compile(model, [torch.ones(2, 64)]), path)
    with Counting(path) as opened, CheckedFile(opened, checksums_of(path, 1 << 12)) as file:
        torchtrt.load(file)
        file.check_rest()

    size = path.stat().st_size
    assert size > 400_000
    assert size <= opened.count < 1.2 * size


@pytest.mark.parametrize("turns", ["aabb", "abab", "abba"])
def test_a_reader_never_gets_files_of_two_writers(tmp_path, turns):
    """In any order in which they write their two files and the description: all of one writer, or an error."""
    file = tmp_path / "all.json"
    writers = {name: NewFolder(file) for name in "ab"}
    positions = {name: iter("12") for name in "ab"}
    for name in turns:
        with writers[name].part(next(positions[name])) as path:
            path.write_text(name)
    for name in "ab":
        writers[name].describe({"of": name}, 1)
        saved = read_description(file, 1, "")
        for part in "12":
            content = (tmp_path / part).read_text()
            refused = pytest.raises(UnreadableFileError, match="is not the file that was saved")
            with (
                contextlib.nullcontext() if content == name else refused,
                saved.open(part) as stream,
            ):
                assert name == stream.read().decode()


def test_a_description_that_cannot_be_replaced_is_named(tmp_path):
    """Before a file of the folder is written."""
    (tmp_path / "all.json").mkdir()

    with pytest.raises(
        UnwritableFileError, match=r"all\.json cannot be replaced: .*another folder"
    ):
        NewFolder(tmp_path / "all.json")


def test_a_folder_inside_of_another_is_that_of_its_description(tmp_path):
    """Another folder in its place is whole, and of another writer."""
    inner = NewFolder(tmp_path / "in" / "inner.json")
    outer = NewFolder(tmp_path / "outer.json")
    outer.add("in/inner.json", inner.describe({"of": 1}, 2))
    outer.describe({}, 1)
    saved = read_description(tmp_path / "outer.json", 1, "")
    assert {"of": 1} == saved.folder("in/inner.json", 2, "").content

    NewFolder(tmp_path / "in" / "inner.json").describe({"of": 2}, 2)

    with pytest.raises(UnreadableFileError, match=r"inner\.json is not the file that was saved"):
        saved.folder("in/inner.json", 2, "")
