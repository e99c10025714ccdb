"""Programs with views, copies, writes in place, branches and loops compute what eager computes, or are refused."""

import importlib.util
import itertools
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torchtrt_torchscript as torchscript
from torchtrt.errors import ConversionError, ExportError

from .helpers import quiet

ROWS = 3
INPUTS = ("x", "y")


class Program:
    """Source text under construction. Every name is a matrix of three rows, or one row.

    Args:
        draw: Draws from a strategy.
    """

    def __init__(self, draw):
        self.draw = draw
        self.numbers = itertools.count()
        self.loops = 0

    def choice(self, options):
        """Draws one of several."""
        return self.draw(st.sampled_from(list(options)))

    def block(self, matrices, rows, depth, size):
        """Returns the lines of a block. Names that it makes are its own; it may give those from outside new tensors."""
        matrices, rows, lines = list(matrices), list(rows), []
        for _ in range(self.draw(st.integers(1, size))):
            lines += self.statement(matrices, rows, depth)
        return lines

    def statement(self, matrices, rows, depth):
        """Returns the lines of one statement; adds the name that it makes."""
        kinds = ["new", "alias", "view", "element", "write", "write", "rebind", "put"]
        kind = self.choice(kinds + ["if", "loop", "for"] * (depth > 0))
        if kind in ("new", "alias", "rebind"):
            names = self.choice([matrices, rows])
            source = self.choice(names)
            target = self.choice(names) if kind == "rebind" else f"v{next(self.numbers)}"
            if self.loops and kind == "rebind":
                # A trip that gives on what does not depend on the trip before is for tests of loops: the reference
                # TensorRT cannot build every such loop.
                return [f"{target} = {target} * 0.5 + 1.0"]
            made = {"new": ("{} * 0.5 + 1.0", "{}.clone()", "{} - {}.mean()"), "alias": ("{}",)}
            form = self.choice(made.get(kind, (*made["new"], *made["alias"])))
            if target not in names:
                names.append(target)
            return [f"{target} = {form.format(source, source)}"]
        if kind == "view":
            name = f"v{next(self.numbers)}"
            source = self.choice(matrices)
            form = self.choice([*(f"{{}}[{row}]" for row in range(ROWS)), "{}.view(3, 4)"])
            (matrices if "view" in form else rows).append(name)
            return [f"{name} = {form.format(source)}"]
        if kind == "element":
            name, position = f"v{next(self.numbers)}", self.position_of(matrices)
            line = f"{name} = {self.choice(matrices)}[{position}]"
            rows.append(name)
            return [line]
        if kind == "write":
            target = self.choice([*matrices, *rows])
            same = matrices if target in matrices else rows
            forms = ["{} += 1.0", "{} *= -0.5", "{}.add_({})", "{}.sub_({}.mean())"]
            form = self.choice(forms if self.loops else [*forms, "{}.copy_({})"])
            return [form.format(target, self.choice(same))]
        if kind == "put":
            position = self.choice(
                [str(self.draw(st.integers(0, ROWS - 1))), self.position_of(matrices)]
            )
            return [f"{self.choice(matrices)}[{position}] = {self.choice(rows)}"]
        self.loops += kind == "loop"
        inside = self.block(matrices, rows, depth - 1, 3)
        self.loops -= kind == "loop"
        condition = (
            f"bool({self.choice([*matrices, *rows])}.sum() > {self.draw(st.integers(-3, 6))}.37)"
        )
        if kind == "if":
            lines = [f"if {condition}:", *indented(inside)]
            if self.draw(st.booleans()):
                lines += ["else:", *indented(self.block(matrices, rows, depth - 1, 3))]
            return lines
        count = f"n{next(self.numbers)}"
        if kind == "for":
            return [f"for {count} in range(2):", *indented(inside)]
        return [f"for {count} in range({self.position_of(matrices)}):", *indented(inside)]

    def position_of(self, matrices):
        """Returns a row's number, read out of a tensor."""
        return f"int({self.choice(matrices)}.argmax()) % 3"

    def source(self):
        """Returns the source of a function."""
        matrices, rows, lines = [*INPUTS], ["r"], ["r = x[1]"]
        for _ in range(self.draw(st.integers(2, 7))):
            lines += self.statement(matrices, rows, 2)
        names = ", ".join((*matrices, *rows))
        head = f"def program({', '.join(f'{name}: Tensor' for name in INPUTS)}):"
        return "\n".join((head, *indented([*lines, f"return {names}"]), ""))


def indented(lines):
    """Returns lines one level further in."""
    return [f"    {line}" for line in lines]


@st.composite
def programs(draw):
    """Draws the source of a function of two matrices."""
    return Program(draw).source()


def function_of_source(source, path):
    """Returns the function ``program`` of a source text: TorchScript reads the file."""
    path.write_text(f"from torch import Tensor\n\n\n{source}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


def calls():
    """Returns inputs that take different ways through a program."""
    generator = torch.Generator().manual_seed(0)
    return [
        tuple(torch.randn(ROWS, 4, generator=generator) + shift for _ in INPUTS)
        for shift in (0.0, 1.0, -1.0)
    ]


FILES = itertools.count()


@pytest.mark.parametrize("count", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_a_program_computes_what_eager_computes_or_is_refused(tmp_path_factory, count):
    """Its results and what it leaves in its inputs, call after call; a refusal has the model's line."""

    @settings(
        max_examples=count, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(programs())
    def law(source):
        check_program(tmp_path_factory, source)

    law()


def check_program(tmp_path_factory, source):
    """Compares a program with eager, or checks that its refusal names the model's line."""
    path = tmp_path_factory.getbasetemp() / f"program_{next(FILES)}.py"
    program = function_of_source(source, path)
    scripted = quiet(torch.jit.script, program)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torchscript.compile(scripted, calls()[0], min_block_size=1)
    except (ExportError, ConversionError) as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert path.name in refusal, f"no line in {refusal}"
        return
    for inputs in calls():
        given_to_compiled, given_to_eager = (
            [input_.clone() for input_ in inputs] for _ in range(2)
        )
        actual = compiled(*given_to_compiled)
        expected = program(*given_to_eager)
        torch.testing.assert_close(
            (*actual, *given_to_compiled), (*expected, *given_to_eager), rtol=1e-4, atol=1e-4
        )
