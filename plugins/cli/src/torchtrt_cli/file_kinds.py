"""Describes a file that holds no exported program, and how to make one. Nothing of the file is executed."""

from __future__ import annotations

import json
import pickletools
import zipfile
from pathlib import Path

_SAVE = "torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
_CREATE = f"Create the model in Python, load the weights into it, and save its program: {_SAVE}."
_ORIGIN = f"Save the program of the PyTorch model that it was made of: {_SAVE}."
_DICTIONARIES = {"collections OrderedDict", "builtins dict", "__builtin__ dict"}
_OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of a file of ``torch.save`` from before PyTorch 1.6."""


def is_torchscript(path: Path) -> bool:
    """Returns whether a file is of ``torch.jit.save``."""
    names = _names(path)
    has_constants = any(name.endswith("/constants.pkl") for name in names)
    return has_constants and any("/code/" in name for name in names)


def other_kind(path: Path) -> str | None:
    """Returns what a path is, in a sentence, and what compiles it; ``None`` for a program, or an unknown archive.

    Args:
        path: A file or a folder.
    """
    if path.is_dir():
        return _folder(path)
    with path.open("rb") as file:
        start = file.read(1 << 16)
    if not start:
        return "It is empty."
    if start.startswith(b"PK"):
        return _archive(path)
    if start.startswith(_OLD):
        return f"It is a file of torch.save in the format of before PyTorch 1.6. {_CREATE}"
    if start.startswith(b"ftrt"):
        return "It is a plan of TensorRT, compiled already: torchtrt.engine_module(path) runs it."
    if _is_safetensors(start):
        return f"It is a file of safetensors, which holds weights and no model. {_CREATE}"
    if path.suffix == ".onnx" or _is_onnx(start):
        return f"It is a model in ONNX, and torchtrt compiles models of PyTorch. {_ORIGIN}"
    if start.startswith(b"version https://git-lfs"):
        return "It is a pointer of Git LFS, in place of the file: `git lfs pull` downloads it."
    if start.startswith(b"\x80"):
        return f"It is a pickle that torch.save did not write. {_CREATE}"
    return f"It is no zip archive, and torch.export.save writes one. {_ORIGIN}"


def _folder(path: Path) -> str:
    if any((path / name).is_file() for name in ("config.json", "model_index.json")):
        return (
            "It is a folder of transformers or diffusers. Load the model with from_pretrained, and compile it in "
            f"Python or save its program: {_SAVE}."
        )
    return f"It is a folder. Give the file of a program, which this line writes: {_SAVE}."


def _archive(path: Path) -> str | None:
    """Returns what a file is that begins as a zip archive does."""
    names = _names(path)
    if not names:
        return "It is the beginning of a zip archive, as an interrupted copy leaves it. Copy the file again."
    if is_torchscript(path):
        return (
            f"It is a TorchScript model. Give the sizes of its inputs: `torchtrt compile {path} --input 1-8,3,224,224 "
            "--output OUT.pt2`, with one --input for each. In Python: torchtrt.compile(torch.jit.load(path), inputs)."
        )
    if any(
        name.endswith(("/models/model.json", "serialized_exported_program.json")) for name in names
    ):
        return None
    if any("/aotinductor/" in name for name in names):
        return f"It is a package of AOTInductor, compiled already. {_ORIGIN}"
    pickle = next((name for name in names if name.endswith("/data.pkl")), None)
    if pickle is None:
        return None
    with zipfile.ZipFile(path) as archive:
        return _pickled(archive.read(pickle))


def _pickled(data: bytes) -> str:
    """Returns what a file of ``torch.save`` holds, by the first object of its pickle."""
    operations = ((code.name, argument) for code, argument, _ in pickletools.genops(data))
    kind, name = next(
        operation for operation in operations if operation[0] not in ("PROTO", "FRAME")
    )
    if kind == "EMPTY_DICT" or name in _DICTIONARIES:
        held = "a dictionary, such as the weights of a state_dict, and no model"
    elif kind == "GLOBAL" and not str(name).startswith("torch._utils "):
        return (
            f"It is a file of torch.save with an object of the class {str(name).replace(' ', '.')}. If you trust it, "
            "load it in Python with torch.load(path, weights_only=False), which executes code of the file. Compile "
            f"the model there, or save its program: {_SAVE}."
        )
    else:
        held = "tensors and no model"
    return f"It is a file of torch.save that holds {held}. {_CREATE}"


def _names(path: Path) -> list[str]:
    """Returns the names in a zip archive, none if it is no whole one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _is_safetensors(start: bytes) -> bool:
    """Returns whether bytes are a length and a dictionary in JSON, as safetensors begin."""
    size = int.from_bytes(start[:8], "little")
    if start[8:9] != b"{" or size > 100_000_000:
        return False
    try:
        json.loads(start[8 : 8 + size])
    except ValueError:
        return size > len(start) - 8
    return True


def _is_onnx(start: bytes) -> bool:
    """Returns whether bytes are the version of ONNX and the name of a producer, or a graph, in a protobuf."""
    return start[0] == 8 and start[1] < 32 and start[2:3] in (b"\x12", b"\x1a", b"\x3a", b"\x42")
