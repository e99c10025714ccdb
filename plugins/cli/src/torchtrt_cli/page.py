"""The page of ``torchtrt explain MODEL.pt2 --html FILE``: the data in it, and how it is written.

``explain.html`` beside this file is the page without data. It loads nothing over the network.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt import __version__
from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import inner_graphs, model_line, resolution_of
from torchtrt.packs import loaded_packs
from torchtrt.registry import Resolution
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt.torch_internals import pytree
from torchtrt_cli.converters import pack_as_json
from torchtrt_cli.coverage import coverages_of
from torchtrt_compiler.coverage import share
from torchtrt_runtime import CompiledModule
from torchtrt_runtime.reports.advice import advice
from torchtrt_runtime.reports.report import CompilationReport
from torchtrt_runtime.reports.tables import torch_groups

TEMPLATE = "explain.html"
IN_TORCH = "PyTorch"
"""Where a node runs that no engine has; the name of a block otherwise."""


def write_page(compiled: CompiledModule, title: str, path: Path) -> None:
    """Writes the page of a model.

    Args:
        compiled: The model, compiled with ``dryrun``.
        title: What the page calls it.
        path: The file. An existing one is overwritten.

    Raises:
        UnsupportedProgramError: The file cannot be written.
    """
    text = fill(title, page_data(compiled, title))
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UnsupportedProgramError(f"{path} cannot be written: {error}.") from error


def fill(title: str, data: Any) -> str:
    """Returns the page with its title and its data filled in.

    In JSON ``<``, ``>`` and ``&`` are inside strings only, where they may be escapes: so no name can end the
    element that the data is in.
    """
    # ASCII and without half characters: whatever a path or a name holds can be written as UTF-8.
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    shown = title.encode("utf-8", "replace").decode("utf-8")
    parts = {"title": html.escape(shown), "data": plain}
    template = (resources.files("torchtrt_cli") / TEMPLATE).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def page_data(compiled: CompiledModule, title: str) -> dict[str, Any]:
    """Returns what the page shows, as data that ``json.dumps`` accepts.

    Beside the report's own entries these are ``inputs``, ``packs``, ``groups`` of fallback ops, and ``coverage``.
    ``nodes`` are in the order in which they run, and refer to ``resolutions`` by place.
    """
    report = compiled.report
    placeholders = compiled.graph_module.graph.find_nodes(op="placeholder")
    nodes, resolutions = list_nodes(compiled.graph_module, report)
    ops = dict.fromkeys(node["op"] for node in nodes)
    return {
        **report.to_json(),
        "title": title,
        "torchtrt": __version__,
        "torch": torch.__version__,
        "inputs": [{"name": node.name, "value": describe_value(node)} for node in placeholders],
        "packs": packs_of(nodes),
        "nodes": nodes,
        "resolutions": resolutions,
        "groups": [
            {
                "op": torch_op.op,
                "count": count,
                "reason": torch_op.reason,
                "advice": advice(torch_op),
            }
            for torch_op, count in torch_groups(report.in_torch)
        ],
        "coverage": list(coverage_of(ops)),
    }


def list_nodes(
    graph_module: GraphModule, report: CompilationReport
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the calls of a partitioned graph in the order in which they run, and their resolutions.

    A node's ``where`` is its block or ``IN_TORCH``; ``pack`` is whose converter has it, ``reason`` why it stays in
    PyTorch. One outside of blocks that has neither is a size, or picks a result of another.
    """
    blocks = {block.name for block in report.blocks}
    reasons = {entry.node: entry.reason for entry in report.in_torch}
    resolutions: dict[str, int] = {}
    nodes = []
    for node, where, inside in _calls(graph_module, blocks):
        resolution = resolution_of(node)
        entry: dict[str, Any] = {
            "name": node.name,
            "op": qualified_name(node.target),
            "value": describe_value(node),
            "where": where,
        }
        if where != IN_TORCH and resolution is not None and resolution.chosen is not None:
            entry["pack"] = resolution.chosen.pack.name
        if where == IN_TORCH and not inside and node.name in reasons:
            entry["reason"] = reasons[node.name]
        for key, value in (
            ("inside", inside),
            ("line", model_line(node)),
            ("decomposed_from", str(node.meta.get("decomposed_from", ""))),
        ):
            if value:
                entry[key] = value
        if resolution is not None and resolution.candidates + resolution.rejections:
            text = json.dumps(resolution_as_json(resolution))
            entry["resolution"] = resolutions.setdefault(text, len(resolutions))
        nodes.append(entry)
    return nodes, [json.loads(text) for text in resolutions]


def _calls(
    graph_module: GraphModule, blocks: Iterable[str], where: str = IN_TORCH, inside: str = ""
) -> Iterator[tuple[Node, str, str]]:
    """Yields each call, where it runs, and which node's inner graph it is in."""
    seen: set[Any] = set()
    picks: set[Node] = set()  # of what a block returns: they are in no model
    for node in graph_module.graph.nodes:
        if node.op == "call_module" and node.target in blocks:
            picks.update(node.users)
            if node.target in seen:  # an equal block
                continue
            seen.add(node.target)
            block = graph_module.get_submodule(str(node.target))
            assert isinstance(block, GraphModule)
            yield from _calls(block, (), str(node.target))
        elif node.op == "call_function" and node not in picks:
            yield node, where, inside
            for inner in inner_graphs(node):
                yield from _calls(inner, (), where, node.name)


def describe_value(node: Node) -> str:
    """Returns the dtypes and shapes of what a node makes, such as ``float32[s0, 8]``."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return ", ".join(
        f"{dtype_name(leaf.dtype)}[{', '.join(map(str, leaf.shape))}]"
        if isinstance(leaf, torch.Tensor)
        else str(leaf)
        for leaf in leaves
        if leaf is not None
    )


def resolution_as_json(resolution: Resolution) -> list[dict[str, str]]:
    """Returns what became of each candidate in turn, and the reasons about the node as a whole."""
    rejected = {id(rejection.candidate): rejection.reason for rejection in resolution.rejections}
    later = {id(candidate) for candidate in resolution.not_tried}
    return [
        {"pack": "", "origin": "", "converter": "", "outcome": rejection.reason}
        for rejection in resolution.rejections
        if rejection.candidate is None
    ] + [
        {
            "pack": candidate.pack.name,
            "origin": candidate.pack.origin,
            "converter": candidate.qualified_function,
            "outcome": "takes it"
            if candidate is resolution.chosen
            else "not tried"
            if id(candidate) in later
            else f"rejected: {rejected[id(candidate)]}"
            if id(candidate) in rejected
            else "not preferred",
        }
        for candidate in resolution.candidates
    ]


def packs_of(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the packs in use in their order, each with how many nodes its converters have."""
    counts = Counter(node.get("pack") for node in nodes)
    return [
        {**pack_as_json(loaded.info), "nodes": counts[loaded.info.name]}
        for loaded in loaded_packs()
        if loaded.info.version or counts[loaded.info.name]  # the program's own pack may be empty
    ]


def coverage_of(ops: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yields each pack's declared coverage of a model's ops: a share for each dtype and version."""
    for pack, coverage in coverages_of(ops).items():
        if coverage.ops:
            dtypes = dict.fromkeys(dtype for op in coverage.ops.values() for dtype in op.samples)
            yield {
                "pack": pack,
                "torch": coverage.torch,
                "versions": list(coverage.versions),
                "dtypes": list(dtypes),
                "ops": {
                    name: {dtype: list(map(share, of)) for dtype, of in op.samples.items()}
                    for name, op in coverage.ops.items()
                },
            }
