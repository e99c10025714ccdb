"""The questions about sizes that a model's Python code asks while it is exported.

``torch.export`` takes each dynamic size for 2 or more. A question that has one answer for all such sizes, such as
``x.shape[0] == 1``, leaves no trace in the program. Here each question becomes a condition: a call whose sizes give
another answer needs another program. Questions that an op asks about the sizes of its arguments are left to
``small_sizes``, which runs the op with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import sympy
from torch.export import ExportedProgram

from torchtrt.graphs.symbols import answers_are_same, shape_env_of
from torchtrt_compiler.sizes.guards import input_sizes, line_of
from torchtrt_compiler.torch_internals import (
    asking_frame,
    is_guard_of_dynamo,
    is_unbacked,
    noting_size_questions,
)

_KEY = "torchtrt_size_questions"


class AskedConditions(NamedTuple):
    """The conditions under which the questions of a model's code have the answers that its program holds.

    Attributes:
        lines: The conditions on the symbols of the program's inputs, each with the line of the model.
        as_asked: The same on the symbols that the inputs had before PyTorch took some of them for equal.
        by_layout: The equations that PyTorch took to hold where it asked how tensors lie in memory.
    """

    lines: Mapping[Any, str]
    as_asked: Mapping[Any, str]
    by_layout: Collection[Any]


class SizeQuestions:
    """Notes the questions about sizes that Python code asks inside a ``with`` block, and their answers.

    Args:
        may_be_empty: Whether a size of 0 is declared. PyTorch's symbols are positive otherwise, and SymPy answers
            questions about 0 by itself.
    """

    def __init__(self, may_be_empty: bool) -> None:
        self._asked: dict[tuple[Any, Any], tuple[str, bool]] = {}
        self._by_layout: set[tuple[Any, Any]] = set()
        self._may_be_empty = may_be_empty
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> SizeQuestions:
        self._stack.enter_context(
            noting_size_questions(self._note, self._note_equal, self._may_be_empty)
        )
        return self

    def __exit__(self, *error: Any) -> None:
        del error
        self._stack.close()

    def _note(self, environment: Any, question: Any, answer: bool) -> None:
        if any(map(is_unbacked, question.free_symbols)):
            return  # no size of an input decides it
        condition = question if answer else sympy.Not(question)
        if not answers_are_same() and (environment, condition) not in self._asked:
            asked = line_of(asking_frame()), is_guard_of_dynamo()
            self._asked[environment, condition] = asked

    def _note_equal(self, environment: Any, equation: Any) -> None:
        self._by_layout.add((environment, equation))

    def keep_in(self, exported: ExportedProgram) -> None:
        """Keeps the conditions in a program's metadata, where ``asked_conditions`` finds them.

        Dynamo interprets the branches of control flow with symbols of its own, and then checks its guards with the
        program's symbols. One of them is that each size is 2 or more: a condition only if the branches asked about one.
        """
        own: Any = shape_env_of(exported.graph)
        lines = [
            line for (environment, _), (line, _) in self._asked.items() if environment is not own
        ]
        as_asked = {
            condition: line
            for (environment, condition), (line, _) in self._asked.items()
            if environment is own
        }
        settled_lines = {
            settled: line or next(iter(lines), "")
            for (environment, condition), (line, is_of_dynamo) in self._asked.items()
            if environment is own and (lines or not is_of_dynamo)
            if (settled := own.replace(condition)).free_symbols  # a fixed number has none
        }
        by_layout = {equation for environment, equation in self._by_layout if environment is own}
        exported.graph_module.meta[_KEY] = AskedConditions(settled_lines, as_asked, by_layout)


def exclude_empty(exported: ExportedProgram) -> None:
    """Adds that no size of its inputs is 0 to the conditions of a program."""
    asked: AskedConditions = exported.graph_module.meta[_KEY]
    symbols = {symbol for size in input_sizes(exported) for symbol in size.node.expr.free_symbols}
    # To SymPy, a symbol is positive.
    not_empty = {sympy.Ne(symbol, 0, evaluate=False): "" for symbol in symbols}
    exported.graph_module.meta[_KEY] = asked._replace(lines={**asked.lines, **not_empty})


def asked_conditions(exported: ExportedProgram) -> AskedConditions | None:
    """Returns the conditions that a model's code asked for while torchtrt exported it.

    A program that the user exported has none, and ``None`` is returned: its code is no part of it.
    """
    asked: AskedConditions | None = exported.graph_module.meta.get(_KEY)
    return asked
