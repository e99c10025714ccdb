"""``torchtrt inspect FILE``: what a saved model is, without loading it."""

from __future__ import annotations

import argparse
from typing import Any

from torchtrt_cli.output import console, print_json, table
from torchtrt_runtime.report_tables import in_torch_title
from torchtrt_runtime.serialization.inspection import inspect_file

_COMPATIBLE = {
    "version": "Version compatible: the engines run in later TensorRTs too.",
    "hardware": "Hardware compatible: the engines run on every GPU from Ampere on.",
}


def run(arguments: argparse.Namespace) -> int:
    """Prints what a saved model holds."""
    found = inspect_file(arguments.file)
    if arguments.json:
        print_json(found)
        return 0
    out = console()
    gpu = found["gpu"] or "no GPU in particular"
    out.print(
        f"Saved by torchtrt {found['torchtrt']} with PyTorch {found['torch']}, for {found['tensorrt']} and {gpu}."
    )
    if not all(engine["has_weights"] for engine in found["engines"]):
        out.print(
            "The engines have no weights in the file: torchtrt.load(file, weights=...) gives them."
        )
    capabilities = dict.fromkeys(
        each for engine in found["engines"] for each in engine["compute_capabilities"]
    )
    if capabilities:
        out.print(f"The engines run on GPUs of compute capability {', '.join(capabilities)}.")
    for kind in sorted({kind for engine in found["engines"] for kind in engine["compatible"]}):
        out.print(_COMPATIBLE[kind])
    out.print(
        table("Inputs", ("name", "dtype", "sizes"), [_input(each) for each in found["inputs"]])
    )
    if found["ranges"]:
        rows = [
            (place, name, *bounds)
            for place, profile in enumerate(found["profiles"])
            for name, bounds in profile.items()
        ]
        out.print(table("Sizes", ("profile", "size", "min", "opt", "max"), rows))
    headings = ("engine", "nodes", "layers", "bytes", "inputs", "outputs", "packs")
    out.print(table("Engines", headings, [_engine(each) for each in found["engines"]]))
    rows = [
        (each["op"], each["count"], _counts(each["dtypes"]), each["pack"], each["converter"])
        for each in found["converted"]
    ]
    out.print(table("Converted", ("op", "nodes", "precision", "pack", "converter"), rows))
    if found["in_torch"]:
        rows = [(each["op"], each["node"], each["reason"]) for each in found["in_torch"]]
        title = in_torch_title(found["settings"].get("inductor", False))
        out.print(table(title, ("op", "node", "reason"), rows))
    if found["tried"]:
        out.print(table("Measured by tune=True", ("what",), [(line,) for line in found["tried"]]))
    settings = [(name, str(value)) for name, value in found["settings"].items()]
    out.print(table("Settings", ("setting", "value"), settings))
    for operator in found["operators"]:
        out.print(f"Calls {operator}: import its library before loading.")
    return 0


def _input(found: dict[str, Any]) -> tuple[str, str, str]:
    if "value" in found:
        return found["name"], "", f"always {found['value']!r}"
    return found["name"], found["dtype"], " x ".join(map(str, found["sizes"])) or "a number"


def _engine(found: dict[str, Any]) -> tuple[object, ...]:
    return (
        found["name"],
        found["nodes"],
        found["layers"],
        found["plan_bytes"],
        ", ".join(f"{each['name']} {_sizes(each)}" for each in found["inputs"]),
        ", ".join(f"{each['name']} {each['dtype']}" for each in found["outputs"]),
        _counts(found["packs"]),
    )


def _counts(counts: dict[str, int] | None) -> str:
    return ", ".join(f"{count} {name}" for name, count in (counts or {}).items())


def _sizes(found: dict[str, Any]) -> str:
    ranges = found.get("ranges") or [(found["min"], found["opt"], found["max"])]
    listed = (
        ", ".join(
            str(low) if low == high else f"{low} to {high}"
            for low, high in zip(lowest, highest, strict=True)
        )
        for lowest, _, highest in ranges
    )
    return f"{found['dtype']} {' or '.join(f'[{sizes}]' for sizes in dict.fromkeys(listed))}"
