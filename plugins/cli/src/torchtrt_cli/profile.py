"""``torchtrt profile MODEL.pt2``: where the time of a call goes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torchtrt
from torchtrt.errors import SettingsError
from torchtrt.graphs.nodes import all_nodes, model_line
from torchtrt_cli.explain import is_saved_model, read_program
from torchtrt_cli.keep import keep_profile, keeping, tell_kept
from torchtrt_cli.output import console, print_json
from torchtrt_cli.settings import parse_settings
from torchtrt_compiler.measuring.tables import lines_of, tables_of
from torchtrt_runtime import CompiledModule


def run(arguments: argparse.Namespace) -> int:
    """Prints where the time of a model's calls goes."""
    path, settings = Path(arguments.model), parse_settings(arguments.set)
    lines: Mapping[str, str] = {}
    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}
    if is_saved_model(path):
        if settings:
            raise SettingsError(
                f"{path} holds engines already: --set is for programs of torch.export."
            )
        compiled = torchtrt.load(path, weights=arguments.weights)
    else:
        if arguments.weights is not None:
            raise SettingsError(
                f"{path} is a program with weights: --weights is for saved models without."
            )
        program = read_program(path)
        lines = _lines(torchtrt.compile(program, **{**settings, "dryrun": True}))
        with keeping(arguments.keep):
            compiled = torchtrt.compile(program, **settings)
        if program.example_inputs is not None:
            inputs, keywords = program.example_inputs
    profile = torchtrt.profile(compiled, *inputs, calls=arguments.calls, **keywords)
    if arguments.keep is not None:
        keep_profile(arguments.keep, profile)
        tell_kept(arguments.keep, arguments.json)
    if arguments.json:
        data = profile.to_json()
        for entry in data["entries"]:
            entry["lines"] = lines_of(entry["nodes"], lines)
        print_json(data)
    else:
        for part in tables_of(profile, lines):
            console().print(part)
    return 0


def _lines(compiled: CompiledModule) -> dict[str, str]:
    """Returns the model's line for each node of a dry run, which has the nodes that compiling has."""
    return {node.name: model_line(node) for node in all_nodes(compiled.graph_module)}
