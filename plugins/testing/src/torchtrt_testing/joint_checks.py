"""Checks cases together, as one program: to export and compile a program takes longer than its ops do.

A case that agrees with PyTorch in such a program needs no check of its own. Every other case does, whatever the reason:
only a check of the case alone shows what is wrong with it. One thing is not seen: a converter that reads the network
outside its arguments, and is wrong in a network without other ops.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

import torchtrt
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.errors import NoEngineWarning
from torchtrt.targets import qualified_name
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import (
    assert_close,
    chosen_settings,
    export_model,
    noting_networks,
    number_ops,
    ops_missing,
    run_compiled,
)
from torchtrt_testing.tensors import MAXIMUM, MINIMUM, USUAL

AT_ONCE = 16
"""Cases of one program: with twice as many, a case takes as long."""

_CASE_PATH = re.compile(r"\bcalls\.(\d+)$")


class Calls(torch.nn.Module):
    """The calls of several modules, each with inputs of its own.

    Args:
        calls: The modules.
        counts: How many inputs each has.
    """

    def __init__(self, calls: Iterable[torch.nn.Module], counts: Iterable[int]) -> None:
        super().__init__()
        self.calls = torch.nn.ModuleList(calls)
        self.counts = list(counts)

    def forward(self, *inputs: torch.Tensor) -> list[Any]:
        """Returns the results of each module."""
        rest = iter(inputs)
        return [
            call(*itertools.islice(rest, count))
            for call, count in zip(self.calls, self.counts, strict=True)
        ]


def agreeing(
    cases: Sequence[OpCase],
    varying: bool,
    settings: Mapping[str, Any],
    faults: Callable[[Sequence[Node]], Sequence[str]],
) -> frozenset[OpCase]:
    """Returns cases that pass in one program what ``check_case`` checks of each; there may be more that pass alone.

    Args:
        cases: The cases, each of its first dtype.
        varying: Whether dimensions vary.
        settings: Further settings of the compilation.
        faults: Returns what is wrong with the answers of validators about nodes.
    """
    able = [case for case in cases if case.tensors and not case.rejected]
    if len(able) < 2:
        return frozenset()
    try:
        return frozenset(_agreeing(able, varying, settings, faults))
    except KeyboardInterrupt:
        raise
    except BaseException:  # a case that skips its test raises no Exception
        middle = len(able) // 2
        halves = able[:middle], able[middle:]
        return frozenset().union(*(agreeing(half, varying, settings, faults) for half in halves))


def _agreeing(
    cases: Sequence[OpCase],
    varying: bool,
    settings: Mapping[str, Any],
    faults: Callable[[Sequence[Node]], Sequence[str]],
) -> Iterator[OpCase]:
    """Yields the cases that agree with PyTorch; raises where one of them keeps the others from an answer."""
    model = Calls((case.model() for case in cases), (len(case.tensors) for case in cases))
    exported = export_model(model, cases, varying)
    if faults(list(exported.graph.nodes)):
        raise ValueError("a validator")
    converted: dict[int | None, set[str]] = defaultdict(set)

    def note(filled: TRTInterpreter) -> None:
        for node in filled.block.graph.nodes:
            if node.op == "call_function":
                converted[_case_index(node)].add(qualified_name(node.target))

    with noting_networks(note), warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEngineWarning)
        compiled = torchtrt.compile(exported, min_block_size=1, **chosen_settings(settings))
    left = {row.node for row in compiled.report.in_torch if not {"write", "view"} & {*row.codes}}
    in_torch = [node for node in compiled.graph_module.graph.nodes if node.name in left]
    if compiled.report.narrowed or len(in_torch) != len(left):
        raise ValueError("sizes, or a node of no case")
    for node in exported.graph.nodes:
        converted[_case_index(node)] |= number_ops([node])
    alone = {_case_index(node) for node in in_torch}
    alone |= {index for index, case in enumerate(cases) if ops_missing(case, converted[index])}
    points = (MINIMUM, USUAL, MAXIMUM) if varying else (USUAL,)
    for point in points:
        inputs = [tensor for case in cases for tensor in case.inputs(point)]
        actual = run_compiled(compiled, *inputs)
        with torch.no_grad():
            expected = model(*inputs)
        results = enumerate(zip(cases, actual, expected, strict=True))
        alone |= {
            index
            for index, (case, mine, theirs) in results
            if not _is_close(mine, theirs, case.tolerance)
        }
    if None in alone:
        raise ValueError("a node of no case")
    yield from (case for index, case in enumerate(cases) if index not in alone)


def _is_close(actual: Any, expected: Any, tolerance: float | None) -> bool:
    try:
        assert_close(actual, expected, tolerance)
    except AssertionError:
        return False
    return True


def _case_index(node: Node) -> int | None:
    """Returns the place of the case that a node is of; ``None`` if PyTorch did not note its module."""
    for path, _ in reversed(list(node.meta.get("nn_module_stack", {}).values())):
        if match := _CASE_PATH.search(path):
            return int(match[1])
    return None
