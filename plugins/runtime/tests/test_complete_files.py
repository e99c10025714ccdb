"""Files that appear complete: what writers that were killed left behind is removed, and nothing else."""

import os
import subprocess
import sys
import time

import pytest

from torchtrt.errors import UnwritableFileError
from torchtrt_runtime.serialization import files

pytest.importorskip("fcntl")
HOUR = 3600
WRITER = (
    "import os, pathlib, sys\n"
    "from torchtrt_runtime.serialization.files import complete_file\n"
    "with complete_file(pathlib.Path(sys.argv[1])) as path:\n"
    "    path.write_bytes(b'half')\n"
    "    print(path.parent, flush=True)\n"
    "    sys.stdin.read()\n"
)


def age(folder):
    """Makes a folder and its files an hour old."""
    past = time.time() - HOUR
    for path in (*folder.iterdir(), folder):
        os.utime(path, (past, past))


def write(path):
    with files.complete_file(path) as temporary:
        temporary.write_bytes(b"whole")
    assert path.read_bytes() == b"whole"


def test_the_folder_of_a_killed_writer_is_removed_by_the_next(tmp_path):
    """Not while the writer lives, and not as long as another machine might have started it."""
    path = tmp_path / "model.pt2"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        folder = tmp_path / writer.stdout.readline().strip()
        age(folder)
        write(path)
        assert (folder / path.name).read_bytes() == b"half"
        writer.kill()
    os.utime(folder)
    write(path)
    assert folder.exists()

    age(folder)
    write(path)

    assert [path] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("character", ["a", "é", "語"])
def test_a_name_may_be_as_long_as_file_systems_allow(tmp_path, character):
    """They count bytes."""
    count = 255 // len(os.fsencode(character))
    write(tmp_path / (character * count))

    with pytest.raises(UnwritableFileError, match="name another file"):
        write(tmp_path / (character * (count + 1)))


def test_folders_that_no_writer_made_are_kept(tmp_path):
    """Whatever their name is, and those of writers of other files."""
    own = tmp_path / ".model.pt2.original"
    own.mkdir()
    (own / "model.pt2").write_bytes(b"mine")
    other = tmp_path / ".other.pt2.12345678"
    other.mkdir()
    (other / files._LOCK).touch()
    for folder_ in (own, other):
        age(folder_)

    write(tmp_path / "model.pt2")

    assert {own, other, tmp_path / "model.pt2"} == {*tmp_path.iterdir()}


def test_a_link_is_kept_and_its_target_is_written(tmp_path):
    """Also where the target does not exist; the temporary folder is beside the target."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder / "target")

    for _ in range(2):
        write(link)

    assert link.is_symlink()
    assert [folder / "target"] == [*folder.iterdir()]


def test_what_is_no_regular_file_is_kept(tmp_path):
    """A pipe, a link to a device, and a link to itself; a name that has no bytes is no path."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to(os.devnull)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, message in (
        ("pipe", "is no regular file"),
        ("device", "is no regular file"),
        ("loop", "is a link to itself"),
        ("\ud800", "is no path: surrogates not allowed"),
        ("x" * 256, "cannot be written: File name too long"),
    ):
        with pytest.raises(UnwritableFileError, match=message):
            write(tmp_path / name)
    assert {"pipe", "device", "loop"} == {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "device").is_symlink()
