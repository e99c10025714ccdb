"""The description in a saved model, read without PyTorch: no engine is loaded, and no GPU is needed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchtrt_runtime.serialization.archive import Archive, File
from torchtrt_runtime.serialization.saving import faults_in, read_metadata


def inspect_file(file: File) -> dict[str, Any]:
    """Returns what a file holds, as data that ``json.dumps`` accepts.

    Returns:
        A dictionary with these keys.

        - ``torchtrt`` and ``torch``: the versions that saved the file.
        - ``tensorrt`` and ``gpu``: the versions and GPUs that the engines are for.
        - ``settings``: the settings of the compilation.
        - ``inputs``: each with its dtype and sizes, or the value that it must have.
        - ``ranges``: the minimum, optimum and maximum of each dynamic size.
        - ``profiles``: the same for the sizes that go together in each optimization profile.
        - ``engines``: their nodes, layers, bytes, inputs, outputs and GPUs, the nodes that each pack converts,
          where else they run (``"version"`` for later TensorRTs, ``"hardware"`` for other GPUs), and whether their
          weights are in the file.
        - ``converted``: the converter and the dtypes of each op.
        - ``in_torch``: the ops that PyTorch runs.
        - ``tried``: the measurements of ``tune=True``.
        - ``operators``: the ops of other libraries that the model calls.
        - ``extra_files``: the texts that were saved with the model, by name.

    Raises:
        UnreadableFileError: The file is no saved model, or is damaged.
    """
    archive = Archive(file)
    metadata = read_metadata(archive)
    with faults_in(metadata):
        return {**_described(metadata), "extra_files": archive.extra_files()}


def _described(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns what ``inspect_file`` returns of the metadata of a file."""
    report = metadata["report"]
    blocks = {block["name"]: block for block in report["blocks"]}
    engines = [_engine(engine, blocks.get(engine["name"], {})) for engine in metadata["engines"]]
    return {
        "torchtrt": metadata["torchtrt"],
        "torch": metadata["torch"],
        "tensorrt": report["tensorrt"],
        "gpu": next((engine["gpu"] for engine in metadata["engines"] if engine["gpu"]), ""),
        "settings": metadata["settings"],
        "inputs": [{**input_, **_readable_sizes(input_)} for input_ in metadata["inputs"]],
        "ranges": metadata["ranges"],
        "profiles": metadata.get("profiles") or [metadata["ranges"]],
        "engines": engines,
        "converted": report["converted"],
        "in_torch": report["in_torch"],
        "tried": report.get("tried", []),
        "operators": metadata["operators"],
    }


def _engine(engine: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    """Returns what ``inspect_file`` shows of an engine, from its metadata and its block's in the report."""
    return {
        "name": engine["name"],
        "nodes": block.get("nodes"),
        "layers": block.get("layers"),
        "plan_bytes": engine["plan_bytes"],
        "has_weights": not engine.get("stripped"),
        "inputs": engine["inputs"],
        "outputs": [
            {"name": output["name"], "dtype": output["dtype"]} for output in engine["outputs"]
        ],
        "compatible": engine.get("compatible", []),
        "compute_capabilities": engine.get("compute_capabilities", []),
        "packs": dict(Counter(engine["converted_by"].values()).most_common()),
    }


def _readable_sizes(described: dict[str, Any]) -> dict[str, Any]:
    """Returns the sizes of an input: numbers, and names or expressions of what varies."""
    if "sizes" not in described:
        return {}
    return {"sizes": [_readable(size) for size in described["sizes"]]}


def _readable(size: Any) -> Any:
    match size:
        case int():
            return size
        case ["symbol", name]:
            return name
        case [name, *arguments]:
            return f"{name}({', '.join(str(_readable(argument)) for argument in arguments)})"
    return str(size)
