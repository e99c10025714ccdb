"""Files that models are written to: errors of a file object come back as torchtrt's, and all bytes are written."""

from __future__ import annotations

import errno
import io
import os

import pytest
import torch

import torchtrt
from torchtrt.errors import InputError, UnwritableFileError

X = torch.rand(2, 3)


@pytest.fixture(scope="module")
def compiled():
    """A model whose file has several kilobytes."""
    return torchtrt.compile(torch.nn.Linear(3, 3).eval(), [X], min_block_size=1)


class Failing(io.BytesIO):
    """A file that raises an error after some bytes."""

    def __init__(self, error, room=1000):
        super().__init__()
        self.error, self.room = error, room

    def write(self, data):
        """Writes as long as there is room."""
        if self.tell() + len(data) > self.room:
            raise self.error
        return super().write(data)


class Small(io.RawIOBase):
    """A file that accepts few bytes in each call."""

    def __init__(self, most=100):
        self.most, self.content = most, bytearray()

    def writable(self):
        """True."""
        return True

    def write(self, data):
        """Accepts the first bytes; None stands for a full buffer of a file that does not wait."""
        if self.most is None:
            return None
        self.content += bytes(data[: self.most])
        return min(len(data), self.most)


class Buffering(io.BytesIO):
    """A file that fails when it is flushed."""

    def flush(self):
        """Raises the error of a full disk."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def closed():
    """Returns a file that is closed."""
    file = io.BytesIO()
    file.close()
    return file


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (Failing(OSError(errno.ENOSPC, "No space left")), "the file failed: No space left. Give"),
        (Failing(LookupError("gone")), "LookupError: gone"),
        (Buffering(), "No space left on device"),
        (closed(), "ValueError: I/O operation on closed file. Give"),
        (io.StringIO(), "TypeError: string argument expected"),
        (Small(None), "temporarily unavailable"),
        (Small(0), "it accepts no bytes"),
    ],
)
def test_a_file_object_that_cannot_be_written_is_an_error(compiled, file, message):
    """PyTorch's writer would end the process."""
    with pytest.raises(UnwritableFileError, match=message):
        torchtrt.save(compiled, file)


def test_an_interrupt_while_a_file_is_written_is_an_interrupt(compiled):
    """It is no fault of the file."""
    with pytest.raises(KeyboardInterrupt):
        torchtrt.save(compiled, Failing(KeyboardInterrupt()))


@pytest.mark.parametrize("file", [5, None, b"model.pt2"])
def test_what_is_neither_a_path_nor_a_file_is_an_error(compiled, file):
    """The error has its type."""
    with pytest.raises(InputError, match=f"and not to an? {type(file).__name__}"):
        torchtrt.save(compiled, file)


def test_all_bytes_are_written_to_a_file_that_accepts_few_at_a_time(compiled):
    """As raw files do."""
    file = Small()
    torchtrt.save(compiled, file)

    loaded = torchtrt.load(io.BytesIO(bytes(file.content)))
    torch.testing.assert_close(loaded(X), compiled(X))


def test_nothing_is_written_after_an_error(compiled, monkeypatch):
    """PyTorch's writer writes the end of the archive when it is deleted."""
    file = io.BytesIO()

    def fail(*_):
        raise InputError

    with monkeypatch.context() as patch:
        patch.setattr("torchtrt_runtime.serialization.archive._write_plans", fail)
        with pytest.raises(InputError):
            torchtrt.save(compiled, file)

    assert b"PK\x05\x06" not in file.getvalue()


def test_a_disk_without_room_is_an_error_and_no_file_appears(compiled, tmp_path):
    """The limit on the size of files stands for the disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(
            UnwritableFileError, match=r"model\.pt2 cannot be written: File too large"
        ):
            torchtrt.save(compiled, tmp_path / "model.pt2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", [".pt2", ".hidden", "..pt2", "\udc80.pt2"])
def test_a_file_may_have_any_name(compiled, tmp_path, name):
    """PyTorch's writer takes the name of an archive from its path, and refuses an empty one."""
    torchtrt.save(compiled, tmp_path / name)

    torch.testing.assert_close(torchtrt.load(tmp_path / name)(X), compiled(X))
