"""Files that appear complete: what writers that were killed left behind is removed, and nothing else."""

import os
import subprocess
import sys
import time

import pytest

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
    for each in (*folder.iterdir(), folder):
        os.utime(each, (past, past))


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


def test_folders_that_no_writer_made_are_kept(tmp_path):
    """Whatever their name is, and those of writers of other files."""
    own = tmp_path / ".model.pt2.original"
    own.mkdir()
    (own / "model.pt2").write_bytes(b"mine")
    other = tmp_path / ".other.pt2.12345678"
    other.mkdir()
    (other / files._LOCK).touch()
    for each in (own, other):
        age(each)

    write(tmp_path / "model.pt2")

    assert {own, other, tmp_path / "model.pt2"} == {*tmp_path.iterdir()}
