"""``torchtrt profile MODEL.pt2``: where the time of a call goes."""

from __future__ import annotations

import argparse
import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.text import Text

import torchtrt
from torchtrt.conversion.interpreter import model_line
from torchtrt.errors import SettingsError
from torchtrt.runtime import CompiledModule
from torchtrt_cli.explain import is_saved_model, read_program
from torchtrt_cli.output import console, print_json, table

_SHOWN = 30
"""The most entries that are printed; ``--json`` has all."""


def run(arguments: argparse.Namespace) -> int:
    """Prints where the time of a model's calls goes."""
    path, settings = Path(arguments.model), dict(map(_setting, arguments.set))
    lines: Mapping[str, str] = {}
    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}
    if is_saved_model(path):
        if settings:
            raise SettingsError(
                f"{path} holds engines already: --set is for programs of torch.export."
            )
        compiled = torchtrt.load(path)
    else:
        program = read_program(path)
        lines = _lines(torchtrt.compile(program, **{**settings, "dryrun": True}))
        compiled = torchtrt.compile(program, **settings)
        if program.example_inputs is not None:
            inputs, keywords = program.example_inputs
    found = torchtrt.profile(compiled, *inputs, calls=arguments.calls, **keywords)
    if arguments.json:
        data = found.to_json()
        for entry in data["entries"]:
            entry["lines"] = _lines_of(entry["nodes"], lines)
        print_json(data)
    else:
        for part in tables_of(found, lines):
            console().print(part)
    return 0


def tables_of(profile: Any, lines: Mapping[str, str] | None = None) -> Iterator[RenderableType]:
    """Yields what a :class:`torchtrt_engines.CallProfile` tells.

    Args:
        profile: The profile.
        lines: For nodes of the model's graph, the line of the model that made each.
    """
    yield Text(
        f"A call takes {profile.milliseconds:.3f} ms on {profile.device} with {profile.tensorrt} "
        f"(median of {profile.calls})."
    )
    if profile.has_inductor:
        yield Text("Inductor compiles what runs in PyTorch: its ops are measured as without.")
    parts = [entry for entry in profile.entries if entry.kind != "kernel"]
    total = sum(entry.milliseconds for entry in parts) or 1.0
    yield from _table("Where it goes", parts, total, lines or {})
    for place, entries in itertools.groupby(
        sorted(
            (each for each in profile.entries if each.kind == "kernel"), key=lambda each: each.place
        ),
        key=lambda each: each.place,
    ):
        kernels = sorted(entries, key=lambda each: -each.milliseconds)
        of_all = sum(entry.milliseconds for entry in kernels) or 1.0
        yield from _table(f"Kernels of {place}", kernels, of_all, {})


def _table(
    title: str, entries: list[Any], total: float, lines: Mapping[str, str]
) -> Iterator[RenderableType]:
    headings = ("ms", "share", "runs", "place", "layer, kernel or op", "line")
    rows: list[tuple[str, ...]] = [
        (
            f"{entry.milliseconds:.3f}",
            f"{entry.milliseconds / total:.0%}",
            str(entry.calls),
            entry.place,
            entry.name,
            "; ".join(_lines_of(entry.nodes, lines)),
        )
        for entry in entries[:_SHOWN]
    ]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]  # type: ignore[assignment]
    yield table(title, headings, rows)
    if len(entries) > _SHOWN:
        rest = sum(entry.milliseconds for entry in entries[_SHOWN:])
        yield Text(
            f"{len(entries) - _SHOWN} further take {rest:.3f} ms together; --json lists them."
        )


def _lines(compiled: CompiledModule) -> dict[str, str]:
    """Returns the model's line for each node of a dry run, which has the nodes that compiling has."""
    graphs = (
        module.graph
        for module in compiled.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
    )
    return {node.name: model_line(node) for graph in graphs for node in graph.nodes}


def _lines_of(nodes: Iterable[str], lines: Mapping[str, str]) -> list[str]:
    return [line for line in dict.fromkeys(lines.get(node, "") for node in nodes) if line]


def _setting(text: str) -> tuple[str, Any]:
    """Returns a setting of the form ``name=value``: a number, a name of a dtype, or whatever Python can read."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--set {text}: write --set name=value, as --set autocast=float16.")
    dtype = getattr(torch, value, None)
    if isinstance(dtype, torch.dtype):
        return name, dtype
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
