"""``torchtrt.save`` and ``torchtrt.load``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

import torchtrt
from torchtrt.errors import (
    InputError,
    MissingOperatorError,
    TorchTRTError,
    UnreadableFileError,
    UnsupportedProgramError,
    kind_of,
)
from torchtrt.packs import load_packs
from torchtrt.targets import qualified_name
from torchtrt.torch_internals import OpOverload
from torchtrt_runtime.modules.compiled import CompiledModule, check_compiled
from torchtrt_runtime.modules.supplying import Weights, supply
from torchtrt_runtime.processes.groups import Processes
from torchtrt_runtime.serialization import cpp_formats
from torchtrt_runtime.serialization.archive import METADATA, Archive, File, skeleton_of, write
from torchtrt_runtime.serialization.call_interface import (
    compiled_from,
    describe_interface,
    interface_from,
    trees_of,
)
from torchtrt_runtime.serialization.engine_operator import output_shapes
from torchtrt_runtime.serialization.exported_program import RUN, from_program, to_program

FORMAT = 1
"""The form of the metadata. A reader takes its own only."""

_PYTORCHS_OWN = frozenset(
    {"aten", "prim", "prims", "higher_order", "torchtrt", "inductor", "_c10d_functional"}
)


FORMATS = ("exported_program", "aot_inductor", "torchscript")
"""The formats that ``save`` writes. C++ programs run the last two."""


def save(
    compiled: CompiledModule,
    file: File,
    *,
    extra_files: Mapping[str, str] | None = None,
    format: str = "exported_program",
) -> None:
    """Writes a compiled model to a file, engines and all.

    ``torchtrt.load`` reads an exported program; so does, once torchtrt is imported, ``torch.export.load``.

    Args:
        compiled: What ``torchtrt.compile`` returned.
        file: A path, or a file object that accepts bytes. At a path the file appears complete or not at all.
        extra_files: Texts to keep in the file, by name: a relative path with ``/`` between its parts. Without it, those
            that the model was loaded with.
        format: ``"exported_program"`` is for Python. ``"aot_inductor"`` and ``"torchscript"`` are for C++ programs with
            the library of ``torchtrt-cpp``, and need a path. For the first one, Inductor compiles the ops that PyTorch
            runs.

    Raises:
        InputError: ``compiled`` is something else, ``file`` or ``format`` is, or an extra file is no text or has no
            usable name.
        UnsupportedProgramError: The model holds something that has no form in a file; the message names it.
        EngineError: A weight of the model has changed since it was compiled.
        UnwritableFileError: There can be no file at this path: it is a folder, or in one that is not there or is
            read-only, or has no room. Or the file object raises an error.
    """
    check_compiled(compiled, "torchtrt.save")
    texts = compiled.extra_files if extra_files is None else extra_files
    _check_extra_files(texts)
    if format not in FORMATS:
        names = ", ".join(map(repr, FORMATS))
        raise InputError(f"torchtrt.save() writes the formats {names}, and not {format!r}.")
    compiled.usage_checks.check_weights()
    if format != "exported_program":
        with torch.device("cpu"), _reasons_not_to_save():
            cpp_formats.write(compiled, file, texts, format)
        return
    # PyTorch's writer and reader fail where another device is the default.
    with torch.device("cpu"), _reasons_not_to_save():
        interface = describe_interface(compiled)
        saved = to_program(compiled)
        metadata = {
            "format": FORMAT,
            "torchtrt": torchtrt.__version__,
            "torch": torch.__version__,
            "operators": sorted(_foreign_operators(saved.program)),
            "engines": saved.descriptions,
            **interface,
        }
        if compiled.interface.processes is not None:
            metadata["processes"] = compiled.interface.processes.to_json()
        skeleton = skeleton_of(saved.program, metadata, texts)
        _read_again(skeleton)
    write(file, skeleton, saved.tensors, saved.plans)


def _check_extra_files(files: Any) -> None:
    """Checks the user's own files.

    Raises:
        InputError: They are no texts by name, or a name has no place among those of a file.
    """
    if not isinstance(files, Mapping):
        message = f"extra_files is {kind_of(files)}. Give texts by name: {{'labels.json': text}}."
        raise InputError(message)
    for name, text in files.items():
        if not _is_extra_name(name):
            raise InputError(
                f"extra_files has the name {name!r}. Give a relative path with / between its parts, other than "
                f"{METADATA}, which is torchtrt's own."
            )
        if not isinstance(text, str) or not _is_unicode(text):
            raise InputError(
                f"extra_files[{name!r}] is {kind_of(text)}, and no text that UTF-8 can encode. Encode it, for example "
                "in base64."
            )


def _is_extra_name(name: Any) -> bool:
    if not isinstance(name, str) or not name.isprintable() or not _is_unicode(name):
        return False
    parts = name.split("/")
    return name != METADATA and "\\" not in name and not {"", ".", ".."} & {*parts}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _reasons_not_to_save() -> Iterator[None]:
    """Raises an error in the block as one of the model.

    Raises:
        UnsupportedProgramError: The block raised an error of another library, or that the file cannot be read.
    """
    try:
        yield
    except UnreadableFileError as error:
        reason = error if error.__cause__ is None else _named(error.__cause__)
        raise UnsupportedProgramError(
            f"The model has something that no file can have, since torchtrt.load would refuse it: {reason}"
        ) from error
    except (TorchTRTError, MemoryError):
        raise
    except Exception as error:
        message = f"The model has something that no file can have: {_named(error)}"
        raise UnsupportedProgramError(message) from error


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).rstrip('.')}."


def _read_again(skeleton: Archive) -> None:
    """Reads all of a file but its weights and plans, as ``load`` does."""
    metadata = read_metadata(skeleton)
    with reading(skeleton, metadata) as program:
        kinds = (spec.kind for spec in program.graph_signature.input_specs)
        interface_from(metadata, sum(kind is InputKind.USER_INPUT for kind in kinds))
        for node in program.graph.find_nodes(op="call_function", target=RUN):
            output_shapes(str(node.args[2]))


def _foreign_operators(program: ExportedProgram) -> Iterable[str]:
    """Yields the ops that a program calls and that are not PyTorch's own."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if isinstance(node.target, OpOverload) and node.target.namespace not in _PYTORCHS_OWN:
                yield qualified_name(node.target)


def load(file: File, *, weights: Weights | None = None) -> CompiledModule:
    """Returns the compiled model in a file that ``save`` wrote. Nothing in the file is executed.

    Args:
        file: A path, or something to read bytes from that can seek.
        weights: The weights of a model that was compiled with ``strip_engine_weights``. They come as a state dict, a
            model of the same class, its exported program, or the path of a safetensors file. An index,
            ``.safetensors.index.json``, stands for the files that it names.
            The model keeps the tensors, so do not change them.

    Raises:
        UnreadableFileError: The file is no saved model, or is damaged, or there are no weights at their path.
        RefitError: The file has no weights, and those that are given do not fit, or none are given.
        InputError: Weights are given, and the file has its own.
        EngineMismatchError: Its engines are for another TensorRT, or for another GPU.
        MissingOperatorError: A library has to be imported first, for an operator that the model calls.
        ProcessGroupError: It is the part of another rank, or of another number of processes.
    """
    archive = Archive(file)
    metadata = read_metadata(archive)
    with faults_in(metadata):
        processes = Processes.from_json(metadata.get("processes"))
    if processes is not None:
        processes.check()
    with reading(archive, metadata) as program:
        graph_module = from_program(program, archive.tensors(program), archive.plans())
        compiled = compiled_from(metadata, graph_module)
    supply(compiled, weights)
    compiled.extra_files = archive.extra_files()
    return compiled


@contextmanager
def reading(archive: Archive, metadata: Mapping[str, Any]) -> Iterator[ExportedProgram]:
    """Gives a saved model's program, with stand-ins of one element for all weights. Errors in the block are the file's.

    Raises:
        UnreadableFileError: The file is damaged, or PyTorch cannot read the program.
        MissingOperatorError: A library has to be imported first, for an operator that the model calls.
    """
    with faults_in(metadata):
        if archive.byte_order() != sys.byteorder:
            message = (
                f"The file's numbers are {archive.byte_order()}-endian, this machine's are not."
            )
            raise UnreadableFileError(message)
        _check_operators(metadata["operators"])
        trees_of(metadata)  # PyTorch's error does not name the container that it misses
        yield archive.program()


@contextmanager
def faults_in(metadata: Mapping[str, Any]) -> Iterator[None]:
    """Raises an error in the block as one of the file.

    Raises:
        UnreadableFileError: The block raised an error of another library.
    """
    try:
        yield
    except TorchTRTError:
        raise
    except Exception as error:
        what = f"cannot read the program: {type(error).__name__}: {error}"
        if metadata.get("torch") == torch.__version__:
            advice = (
                "Save the model again if the file is damaged; PyTorch loads one program at a time."
            )
        else:
            advice = f"PyTorch {metadata.get('torch')} saved it: load it with that version, or save it again."
        raise UnreadableFileError(f"PyTorch {torch.__version__} {what}. {advice}") from error


def read_metadata(archive: Archive) -> dict[str, Any]:
    """Returns a saved model's metadata.

    Raises:
        UnreadableFileError: It is not a saved model, or of another form.
    """
    metadata = archive.metadata()
    if metadata.get("format") != FORMAT:
        raise UnreadableFileError(
            f"The file has format {metadata.get('format')!r} of torchtrt {metadata.get('torchtrt')}, and this "
            f"torchtrt, {torchtrt.__version__}, reads {FORMAT}. Save the model again."
        )
    return metadata


def _check_operators(names: Iterable[str]) -> None:
    """Checks that the ops of a saved model are registered, by packs or by libraries.

    Raises:
        MissingOperatorError: One is not.
    """
    missing = [name for name in names if not _is_registered(name)]
    if missing:
        load_packs()  # which may have ops of their own
    missing = [name for name in missing if not _is_registered(name)]
    if missing:
        libraries = ", ".join(sorted({name.partition(".")[0] for name in missing}))
        raise MissingOperatorError(
            f"The model calls {', '.join(missing)}, which no imported library has registered. Import the library of "
            f"{libraries} before loading."
        )


def _is_registered(name: str) -> bool:
    if not re.fullmatch(r"\w+\.\w+\.\w+", name):
        return False
    namespace, op, overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    return hasattr(packet, overload)
