"""``torchtrt inspect FILE``: what a saved model is, without loading it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from torchtrt_cli.output import console, print_json, table
from torchtrt_runtime.reports.tables import in_torch_title
from torchtrt_runtime.serialization.inspection import inspect_file

_COMPATIBLE = {
    "version": "Version compatible: the engines run in later TensorRTs too.",
    "hardware": "Hardware compatible: the engines run on every GPU from Ampere on.",
}


def run(arguments: argparse.Namespace) -> int:
    """Prints what a saved model holds."""
    description = inspect_file(arguments.file)
    if arguments.json:
        print_json(description)
        return 0
    out = console()
    for line in _origin(description):
        out.print(line)
    for rows in _tables(description):
        out.print(rows)
    for operator in description["operators"]:
        out.print(f"Calls {operator}: import its library before loading.")
    return 0


def _origin(description: dict[str, Any]) -> Iterator[str]:
    """Yields where a saved model comes from, and where its engines run."""
    gpu = description["gpu"] or "no GPU in particular"
    yield (
        f"Saved by torchtrt {description['torchtrt']} with PyTorch {description['torch']}, for "
        f"{description['tensorrt']} and {gpu}."
    )
    engines = description["engines"]
    if not all(engine["has_weights"] for engine in engines):
        yield "The engines have no weights in the file: torchtrt.load(file, weights=...) gives them."
    capabilities = dict.fromkeys(
        capability for engine in engines for capability in engine["compute_capabilities"]
    )
    if capabilities:
        yield f"The engines run on GPUs of compute capability {', '.join(capabilities)}."
    for kind in sorted({kind for engine in engines for kind in engine["compatible"]}):
        yield _COMPATIBLE[kind]


def _tables(description: dict[str, Any]) -> Iterator[Any]:
    """Yields the tables of a saved model: its inputs, engines, ops and settings."""
    inputs = [_input(tensor) for tensor in description["inputs"]]
    yield table("Inputs", ("name", "dtype", "sizes"), inputs)
    if description["ranges"]:
        sizes = [
            (index, name, *bounds)
            for index, profile in enumerate(description["profiles"])
            for name, bounds in profile.items()
        ]
        yield table("Sizes", ("profile", "size", "min", "opt", "max"), sizes)
    headings = ("engine", "nodes", "layers", "bytes", "inputs", "outputs", "packs")
    yield table("Engines", headings, [_engine(engine) for engine in description["engines"]])
    converted = [
        (row["op"], row["count"], _counts(row["dtypes"]), row["pack"], row["converter"])
        for row in description["converted"]
    ]
    yield table("Converted", ("op", "nodes", "precision", "pack", "converter"), converted)
    if description["in_torch"]:
        in_torch = [(row["op"], row["node"], row["reason"]) for row in description["in_torch"]]
        title = in_torch_title(description["settings"].get("inductor", False))
        yield table(title, ("op", "node", "reason"), in_torch)
    if description["tried"]:
        tried = [(line,) for line in description["tried"]]
        yield table("Measured by tune=True", ("what",), tried)
    settings = [(name, str(value)) for name, value in description["settings"].items()]
    yield table("Settings", ("setting", "value"), settings)


def _input(description: dict[str, Any]) -> tuple[str, str, str]:
    if "value" in description:
        return description["name"], "", f"always {description['value']!r}"
    return (
        description["name"],
        description["dtype"],
        " x ".join(map(str, description["sizes"])) or "a number",
    )


def _engine(description: dict[str, Any]) -> tuple[object, ...]:
    return (
        description["name"],
        description["nodes"],
        description["layers"],
        description["plan_bytes"],
        ", ".join(f"{tensor['name']} {_sizes(tensor)}" for tensor in description["inputs"]),
        ", ".join(f"{tensor['name']} {tensor['dtype']}" for tensor in description["outputs"]),
        _counts(description["packs"]),
    )


def _counts(counts: dict[str, int] | None) -> str:
    return ", ".join(f"{count} {name}" for name, count in (counts or {}).items())


def _sizes(description: dict[str, Any]) -> str:
    """Returns the dtype of an engine's input and its ranges of sizes, as a table shows them."""
    ranges = description.get("ranges") or [
        (description["min"], description["opt"], description["max"])
    ]
    listed = (
        ", ".join(
            str(low) if low == high else f"{low} to {high}"
            for low, high in zip(lowest, highest, strict=True)
        )
        for lowest, _, highest in ranges
    )
    return f"{description['dtype']} {' or '.join(f'[{sizes}]' for sizes in dict.fromkeys(listed))}"
