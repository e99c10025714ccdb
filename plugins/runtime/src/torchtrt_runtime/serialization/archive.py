"""Reads and writes ``.pt2`` files in a stream.

``torch.export.save`` holds every weight in memory twice. Here it writes a *skeleton*, a program whose weights are
stand-ins of one element. The weights go from their memory to the file, under the names and in the form that
``torch.export`` gives them. Reading takes the skeleton out of the file again: PyTorch reads the program, and this
module the weights.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch.export import ExportedProgram

from torchtrt.errors import (
    InputError,
    TorchTRTError,
    UnreadableFileError,
    UnsupportedProgramError,
    UnwritableFileError,
    kind_of,
)
from torchtrt_runtime.call_safety import unsafe_call
from torchtrt_runtime.serialization.archive_writer import ArchiveWriter
from torchtrt_runtime.serialization.engine_metadata import buffer_of
from torchtrt_runtime.serialization.file_safety import check_program
from torchtrt_runtime.serialization.files import complete_file
from torchtrt_runtime.serialization.readable_sizes import make_readable
from torchtrt_runtime.torch_internals import PROGRAMS

METADATA = "torchtrt.json"
_EXTRA = "extra/"
"""The folder for the extra files of ``torch.export.save``; the metadata is one of them."""
_PROGRAM = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_CONFIGS = {
    _WEIGHTS: f"{_WEIGHTS}model_weights_config.json",
    _CONSTANTS: f"{_CONSTANTS}model_constants_config.json",
}
_CHUNK = 1 << 20
_LARGEST_ELEMENT = 16

File = str | os.PathLike[str] | IO[bytes]


def skeleton_of(
    program: ExportedProgram, metadata: Mapping[str, Any], extra_files: Mapping[str, str]
) -> Archive:
    """Returns a file in memory of a program whose weights and plans are stand-ins.

    Args:
        program: The program.
        metadata: What else to write, as JSON.
        extra_files: The user's own texts, by name.

    Raises:
        UnsupportedProgramError: PyTorch cannot write the program.
    """
    skeleton = io.BytesIO()
    text = json.dumps(metadata)
    try:
        torch.export.save(program, skeleton, extra_files={**extra_files, METADATA: text})
    except Exception as error:
        message = (
            f"PyTorch cannot write this model's graph: {_reason(error)} Compute this where the model is called, or let "
            "an engine run what needs it."
        )
        raise UnsupportedProgramError(message) from error
    archive = Archive(skeleton)
    data = archive.json(_PROGRAM)
    make_readable(data)
    archive.replace(_PROGRAM, json.dumps(data).encode())
    return archive


def _reason(error: BaseException) -> str:
    """Returns what PyTorch's writer refuses, and why: its error quotes the whole of its cause."""
    cause = error
    while cause.__cause__ is not None:
        error, cause = cause, cause.__cause__
    lines = [str(exception).partition("\n")[0].rstrip(".") for exception in (error, cause)]
    return ": ".join(dict.fromkeys(lines)) + f" ({type(cause).__name__})."


def write(
    file: File, source: Archive, tensors: Mapping[str, torch.Tensor], plans: Mapping[str, Any]
) -> None:
    """Writes a program whose weights and plans are stand-ins, with the real ones.

    Args:
        file: A path, or a file object that accepts bytes. At a path the file appears when it is complete.
        source: What ``skeleton_of`` returned.
        tensors: The weights, by name.
        plans: The plans, by name.

    Raises:
        InputError: The file is neither a path nor a file object.
        UnsupportedProgramError: A weight has no form in a file.
        UnwritableFileError: There can be no file at this path, or the file object raises an error.
    """
    with _opened(file) as target, ArchiveWriter(target) as writer:
        configs = {config: source.json(config) for config in _CONFIGS.values()}
        payloads = {
            entry["path_name"] for config in configs.values() for entry in config["config"].values()
        }
        _write_tensors(writer, configs[_CONFIGS[_WEIGHTS]]["config"], tensors)
        _write_plans(writer, configs[_CONFIGS[_CONSTANTS]]["config"], plans)
        for name in source.names():
            if name in configs:
                writer.write(name, json.dumps(configs[name]).encode())
            elif name.rpartition("/")[2] not in payloads and not name.startswith(".data/"):
                writer.write(name, b"" if name == _SAMPLES else source.read(name))


@contextmanager
def _opened(file: File) -> Iterator[Any]:
    """Gives a file object to write to; a path's file gets its name when it is complete.

    Raises:
        InputError: The file is neither a path nor a file object.
        UnwritableFileError: There can be no file at this path, or the file object raises an error.
    """
    if isinstance(file, (str, os.PathLike)):
        with complete_file(Path(file)) as temporary, temporary.open("wb") as opened:
            yield opened
        return
    if not callable(getattr(file, "write", None)):
        raise InputError(
            f"torchtrt.save() writes to a path or to a binary file object, and not to {kind_of(file)}."
        )
    try:
        yield file
    except TorchTRTError:
        raise
    except Exception as error:
        reason = ((isinstance(error, OSError) and error.strerror) or str(error)).rstrip(".")
        raise UnwritableFileError(
            f"Writing to {_name_of(file)} failed: {reason}. Give a path, or a file that is open for writing bytes."
        ) from error


def _write_plans(writer: ArchiveWriter, config: dict[str, Any], plans: Mapping[str, Any]) -> None:
    for name, plan in plans.items():
        data = buffer_of(plan)
        writer.write_memory(_CONSTANTS + config[name]["path_name"], data.ctypes.data, data.size)
        config[name]["tensor_meta"]["sizes"] = [{"as_int": data.size}]


@dataclass
class _Span:
    """The part of one storage that several tensors use: the bytes from ``start`` to ``stop``."""

    storage: torch.UntypedStorage
    start: int
    stop: int
    names: list[str]


def _write_tensors(
    writer: ArchiveWriter, config: dict[str, Any], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Writes each storage once, as far as it is used."""
    spans: dict[tuple[int, torch.dtype], _Span] = {}
    for name, tensor in tensors.items():
        if type(tensor.detach()) is not torch.Tensor or tensor.layout is not torch.strided:
            form = f"{kind_of(tensor.detach())} of the layout {tensor.layout}"
            raise UnsupportedProgramError(
                f"The weight {name!r} is {form}, which has no form in a file."
            )
        storage = tensor.untyped_storage()
        start, stop = _extent(tensor)
        span = spans.setdefault((storage._cdata, tensor.dtype), _Span(storage, start, stop, []))
        span.start, span.stop = min(span.start, start), max(span.stop, stop)
        span.names.append(name)
    for index, span in enumerate(spans.values()):
        path_name = f"weight_{index}"
        size = span.stop - span.start
        data = _bytes(span)
        writer.write_memory(_WEIGHTS + path_name, data.data_ptr(), size)
        for name in span.names:
            tensor = tensors[name]
            offset = tensor.storage_offset() - span.start // tensor.itemsize
            config[name]["path_name"] = path_name
            config[name]["tensor_meta"].update(
                sizes=[{"as_int": length} for length in tensor.shape],
                strides=[{"as_int": stride} for stride in tensor.stride()],
                storage_offset={"as_int": offset if size else 0},
                device={"type": tensor.device.type, "index": tensor.device.index},
            )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the first byte that a tensor uses of its storage, and the one after its last."""
    if not tensor.numel():
        return 0, 0
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    offset = int(tensor.storage_offset())
    return offset * tensor.itemsize, (offset + last + 1) * tensor.itemsize


def _bytes(span: _Span) -> torch.Tensor:
    """Returns the bytes on the CPU: the same memory if they are there."""
    data: Any = torch.empty(0, dtype=torch.uint8, device=span.storage.device)
    data.set_(span.storage, span.start, (span.stop - span.start,), (1,))
    made: torch.Tensor = data.cpu()
    return made


def _name_of(file: File) -> str:
    """Returns what errors call a file."""
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    return str(name) if isinstance(name, (str, os.PathLike)) else "the file"


class Archive:
    """A ``.pt2`` file, opened. Each read is checked against the file's checksums.

    Raises:
        UnreadableFileError: The file is no archive, or is damaged.
    """

    def __init__(self, file: File) -> None:
        self._name = _name_of(file)
        if isinstance(file, (str, os.PathLike)) and os.path.isdir(file):
            raise UnreadableFileError(
                f"{self._name} is a folder. A saved model is one file; what generates text is loaded by "
                "CompiledForCausalLM.from_pretrained."
            )
        if isinstance(file, (str, os.PathLike)) and not os.path.isfile(file):
            raise UnreadableFileError(f"There is no file {self._name}.")
        try:
            self._zip = zipfile.ZipFile(file)
            self._infos: dict[str, zipfile.ZipInfo] = {}
            self._replaced: dict[str, bytes] = {}
            for info in self._zip.infolist():
                name = info.filename.partition("/")[2]
                if info.compress_type != zipfile.ZIP_STORED or name in self._infos:
                    raise zipfile.BadZipFile(f"unexpected record {info.filename!r}")
                self._infos[name] = info
        except Exception as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception | str) -> UnreadableFileError:
        what = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        return UnreadableFileError(
            f"{self._name} cannot be read: {what}. It is not a saved model, or it is damaged or incomplete. "
            "Copy the file again, or save the model again, without a format for C++ programs."
        )

    def names(self) -> list[str]:
        """Returns the names of the records, in the order of the file."""
        return list(self._infos)

    def read(self, name: str) -> bytes:
        """Returns a record."""
        return self._replaced.get(name) or bytes(self.read_array(name))

    def replace(self, name: str, data: bytes) -> None:
        """Puts other bytes in the place of a record; in memory, and not in the file."""
        self._replaced[name] = data

    def read_array(self, name: str) -> np.ndarray[Any, Any]:
        """Returns a record in new memory, read in a stream."""
        try:
            info = self._infos[name]
            with self._zip.open(info) as stream:
                if info.file_size > self._length():
                    raise zipfile.BadZipFile("a record is longer than the file")
                data = np.empty(info.file_size, np.uint8)
                done = 0
                while chunk := stream.read(_CHUNK):
                    data[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                    done += len(chunk)
                if done != data.size:
                    raise zipfile.BadZipFile(f"the record {name!r} is incomplete")
                return data
        except Exception as error:
            raise self._damaged(error) from error

    def _length(self) -> int:
        stream: Any = self._zip.fp
        position = stream.tell()
        end = int(stream.seek(0, os.SEEK_END))
        stream.seek(position)
        return end

    def json(self, name: str) -> Any:
        """Returns a record that is JSON."""
        data = self.read(name)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._damaged(error) from error

    def metadata(self) -> dict[str, Any]:
        """Returns what ``write`` was given as metadata.

        Raises:
            UnreadableFileError: The file is an exported program without engines.
        """
        if _EXTRA + METADATA not in self._infos:
            if _PROGRAM in self._infos:
                raise UnreadableFileError(
                    f"{self._name} is an exported program, not a compiled model. Compile it: "
                    "torchtrt.compile(torch.export.load(...))."
                )
            raise self._damaged("it holds no compiled model")
        data = self.json(_EXTRA + METADATA)
        if not isinstance(data, dict):
            raise self._damaged("the metadata is not a JSON object")
        return data

    def extra_files(self) -> dict[str, str]:
        """Returns the user's own texts, by name."""
        names = [name.removeprefix(_EXTRA) for name in self._infos if name.startswith(_EXTRA)]
        try:
            return {name: self.read(_EXTRA + name).decode() for name in names if name != METADATA}
        except UnicodeDecodeError as error:
            raise self._damaged("an extra file is no text") from error

    def program(self) -> ExportedProgram:
        """Returns the program, with stand-ins of one element for all weights.

        Raises:
            UnreadableFileError: It holds something that would be executed, or calls more than ops on tensors.
        """
        skeleton = io.BytesIO()
        payloads: dict[str, int] = {}
        configs = {}
        for folder, name in _CONFIGS.items():
            configs[name] = self.json(name)
            for weight, entry, meta in self._entries(name):
                meta.update(
                    sizes=[{"as_int": 1}],
                    strides=[{"as_int": 1}],
                    storage_offset={"as_int": 0},
                    device={"type": "cpu", "index": None},
                )
                configs[name]["config"][weight] = {**entry, "tensor_meta": meta}
                payloads[folder + entry["path_name"]] = _LARGEST_ELEMENT
        check_program(self.json(_PROGRAM))
        with ArchiveWriter(skeleton) as writer:
            for name in ("archive_format", "archive_version", "byteorder", _PROGRAM):
                if name in self._infos:
                    writer.write(name, self.read(name))
            for name, config in configs.items():
                writer.write(name, json.dumps(config).encode())
            for name, size in payloads.items():
                writer.write(name, bytes(size))
            writer.write(_SAMPLES, b"")
        skeleton.seek(0)
        # PyTorch's reader fails where another device is the default.
        with PROGRAMS, torch.device("cpu"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch 2.11 about its own reading
            program = torch.export.load(skeleton)
        if call := unsafe_call(program.graph_module):
            raise UnreadableFileError(
                f"{self._name} calls {call}. It is not what torchtrt.save writes."
            )
        return program

    def _entries(self, config: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Yields the name, the entry and the geometry of each weight."""
        data = self.json(config)
        try:
            for name, entry in data["config"].items():
                if entry["use_pickle"] or not isinstance(entry["tensor_meta"], dict):
                    raise UnreadableFileError(
                        f"{self._name} holds {name!r} as a pickle, which is never loaded. It is not what torchtrt.save "
                        "writes."
                    )
                yield name, entry, entry["tensor_meta"]
        except (KeyError, TypeError, AttributeError) as error:
            raise self._damaged(error) from error

    def plans(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the plans of the engines, by name."""
        return {
            name: self.read_array(_CONSTANTS + entry["path_name"])
            for name, entry, _ in self._entries(_CONFIGS[_CONSTANTS])
        }

    def tensors(self, program: ExportedProgram) -> dict[str, torch.Tensor]:
        """Returns the weights by name, those of one storage as views of it again.

        Args:
            program: The program; its stand-ins have the dtypes, and record which weights are parameters.
        """
        flat: dict[str, torch.Tensor] = {}
        tensors = {}
        for name, entry, meta in self._entries(_CONFIGS[_WEIGHTS]):
            stand_in = program.state_dict[name]
            try:
                device = torch.device(meta["device"]["type"], meta["device"]["index"])
                sizes, strides = (
                    [int(number["as_int"]) for number in meta[key]] for key in ("sizes", "strides")
                )
                offset = int(meta["storage_offset"]["as_int"])
                path = entry["path_name"]
                if path not in flat:
                    data = self.read_array(_WEIGHTS + path)
                    empty = torch.empty(0, dtype=stand_in.dtype, device="cpu")
                    values = torch.frombuffer(data, dtype=stand_in.dtype) if data.size else empty
                    flat[path] = values.to(device)
                tensor = flat[path].as_strided(sizes, strides, offset)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise self._damaged(error) from error
            if isinstance(stand_in, torch.nn.Parameter):
                tensor = torch.nn.Parameter(tensor, requires_grad=stand_in.requires_grad)
            tensors[name] = tensor
        return tensors

    def byte_order(self) -> str:
        """Returns the order of bytes in the file's numbers."""
        name = "byteorder"
        return self.read(name).decode() if name in self._infos else sys.byteorder
