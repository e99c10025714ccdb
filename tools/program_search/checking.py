"""Compares a compiled program with eager PyTorch, and makes a program that differs as short as it gets."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

import torchtrt
from tools.program_search.programs import Program
from torchtrt.errors import ExportError, InputError, UnsupportedProgramError

_REFUSALS = (ExportError, InputError, UnsupportedProgramError)
_ATTEMPTS = 4


class Outcome(NamedTuple):
    """The outcome of a program.

    Attributes:
        kind: ``right``, ``refused``, ``unstable`` (few digits decide the result) or ``invalid`` (eager PyTorch does
            not run it). The findings are ``differs`` and ``fails``.
        detail: In words.
    """

    kind: str
    detail: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether a user should look at it."""
        return self.kind in ("differs", "fails")


def check(program: Program) -> Outcome:
    """Returns what becomes of a program that is compiled, and called at all its sizes and twice at one."""
    with torch.no_grad(), warnings.catch_warnings(), _plain_autocast():
        warnings.simplefilter("ignore")
        try:
            calls = [*program.calls(), next(program.calls())]
            eager = program.model()
            expected = [
                _called(eager, program.arguments(sizes, seed)) for seed, sizes in enumerate(calls)
            ]
        except Exception as error:
            return Outcome("invalid", _first_line(error))
        source = program.model()
        try:
            compiled = _compiled(source, program)
        except _REFUSALS as error:
            return Outcome("refused", _first_line(error))
        except Exception as error:
            return Outcome("fails", f"compile: {_first_line(error)}")
        refused = ""
        for seed, (sizes, wanted) in enumerate(zip(calls, expected, strict=True)):
            state = _state(source)
            try:
                result = _called(compiled, program.arguments(sizes, seed), source)
            except InputError as error:
                refused = f"{sizes}: {_first_line(error)}"
                _restore(source, wanted.state)
                continue
            except Exception as error:
                return Outcome("fails", f"call {sizes}: {_first_line(error)}")
            if difference := _unexplained(program, _Call(sizes, seed, state), wanted, result):
                if _is_unstable(program, _Call(sizes, seed, state), wanted):
                    return Outcome("unstable", difference)
                return Outcome("differs", f"{sizes}: {difference}")
    return Outcome("right", refused)


def shortest(program: Program, outcome: Outcome) -> Program:
    """Returns a shorter program with a finding of the same kind."""
    wanted = _key(outcome)

    def is_alike(candidate: Program) -> bool:
        return _key(check(candidate)) == wanted

    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(program):
            if is_alike(candidate):
                program, is_smaller = candidate, True
                break
    return program


def _key(outcome: Outcome) -> tuple[str, str]:
    detail = outcome.detail.split(":")[:2] if outcome.kind == "fails" else ()
    return outcome.kind, ":".join(detail)


def _smaller(program: Program) -> Iterator[Program]:
    """Yields programs with a part less."""
    for index, statement in enumerate(program.body):
        before, after = program.body[:index], program.body[index + 1 :]
        yield dataclasses.replace(program, body=(*before, *after))
        lines = statement.splitlines()
        for line in range(1, len(lines) if len(lines) > 2 else 0):
            fewer = "\n".join((*lines[:line], *lines[line + 1 :]))
            yield dataclasses.replace(program, body=(*before, fewer, *after))
    lines = [line for statement in program.body for line in statement.splitlines()]
    values = [*program.names, *(line.split(" =")[0].strip() for line in lines if " = " in line)]
    if program.result not in values:
        for name in filter(str.isidentifier, reversed(values)):
            yield dataclasses.replace(program, result=name)
    if program.kept:
        yield dataclasses.replace(program, kept=())
    for profile in program.profiles if len(program.profiles) > 1 else ():
        yield dataclasses.replace(program, profiles=(profile,))
    if program.how in ("program", "dims"):
        yield dataclasses.replace(program, how="input")


def reproduction(program: Program, outcome: Outcome) -> str:
    """Returns a program to run that shows a finding."""
    lines = [f"# {outcome.kind}: {outcome.detail}", program.source(), "", "import torchtrt", ""]
    lines.append(f"# {program}".replace("\n", "\\n"))
    lines += [
        "from tools.program_search.checking import check",
        "from tools.program_search.programs import *",
    ]
    lines.append(f"print(check({program!r}))")
    return "\n".join(lines)


class _Result(NamedTuple):
    """The results of a call, and the state that it leaves.

    Attributes:
        value: What it returns.
        inputs: The inputs afterwards.
        state: The buffers afterwards.
    """

    value: Any
    inputs: list[Any]
    state: list[torch.Tensor]


def _called(model: Any, inputs: list[Any], source: torch.nn.Module | None = None) -> _Result:
    value = model(*inputs)
    copied = pytree.tree_map_only(torch.Tensor, torch.clone, (value, inputs))
    return _Result(*copied, _state(source or model))


def _state(model: torch.nn.Module) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


def _restore(model: torch.nn.Module, state: Sequence[torch.Tensor]) -> None:
    for buffer, value in zip(model.buffers(), state, strict=True):
        if not torch.equal(buffer, value):
            buffer.copy_(value)


def _compiled(model: torch.nn.Module, program: Program) -> Any:
    """Returns the compiled model."""
    options: dict[str, Any] = {"min_block_size": 1, "torch_executed_ops": set(program.kept)}
    usual = next(program.calls())
    with torchtrt.use_tensorrt(f"reference@{program.version}"):
        if program.how == "fixed":
            return torchtrt.compile(model, program.arguments(usual, 0), **options)
        if program.how == "input":
            return torchtrt.compile(
                model, [_input(program, input_) for input_ in program.inputs], **options
            )
        shapes = _dims(program)
        example = program.arguments({name: max(size, 2) for name, size in usual.items()}, 0)
        if program.how == "dims":
            return torchtrt.compile(model, example, dynamic_shapes=shapes, **options)
        return torchtrt.compile(_exported(model, program), **options)


def _exported(model: torch.nn.Module, program: Program) -> torch.export.ExportedProgram:
    usual = next(program.calls())
    example = program.arguments({name: max(size, 2) for name, size in usual.items()}, 0)
    try:
        return torch.export.export(
            model, tuple(example), dynamic_shapes=_dims(program), strict=False
        )
    except Exception as error:
        raise ExportError(str(error)) from error


def _input(program: Program, spec: Any) -> Any:
    """Returns what to compile for in place of an input: its value, or its ranges of sizes by profile."""
    if not spec.dtype:
        return spec.value
    ranges = [
        tuple(
            spec.sizes({name: bounds[index] for name, bounds in profile.items()})
            for index in range(3)
        )
        for profile in program.profiles
    ]
    return torchtrt.Input(ranges=ranges, dtype=eval(spec.dtype, {"torch": torch}))


def _dims(program: Program) -> Any:
    """Returns the ``dynamic_shapes`` for ``torch.export``."""
    dims = {
        name: torch.export.Dim(name, min=least, max=most)
        for name, (least, _, most) in program.profiles[0].items()
        if least < most
    }
    by_input = []
    for spec in program.inputs:
        sizes = {
            index: eval(size.replace("*n", "*n"), {}, dims)
            for index, size in enumerate(spec.shape)
            if not size.isdecimal() and dims
        }
        by_input.append(sizes if spec.dtype else None)
    return tuple(by_input)


def _difference(wanted: _Result, result: _Result, is_half: bool) -> str:
    """Returns how two results differ, or an empty string."""
    for name, one, other in zip(_Result._fields, wanted, result, strict=True):
        leaves, tree = pytree.tree_flatten(one)
        others, other_tree = pytree.tree_flatten(other)
        if tree != other_tree:
            return f"{name} nest as {other_tree}, not as {tree}"
        for index, (leaf, actual) in enumerate(zip(leaves, others, strict=True)):
            if text := _leaf_difference(leaf, actual, is_half):
                return f"{name}[{index}]: {text}"
    return ""


def _leaf_difference(wanted: Any, actual: Any, is_half: bool) -> str:
    """Returns how one result differs from what eager PyTorch returned, or an empty text."""
    if type(wanted) is not type(actual):
        return f"a {type(actual).__name__}, not a {type(wanted).__name__}"
    if not isinstance(wanted, torch.Tensor):
        return "" if wanted == actual else f"{actual!r}, not {wanted!r}"
    if (wanted.dtype, wanted.shape) != (actual.dtype, actual.shape):
        kinds = [f"{tensor.dtype}{list(tensor.shape)}" for tensor in (actual, wanted)]
        return f"{kinds[0]}, not {kinds[1]}"
    tolerance = 3e-2 if is_half else 1e-4
    try:
        torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return (
            " ".join(str(error).split())[:200]
            + f" {actual.reshape(-1)[:6]} not {wanted.reshape(-1)[:6]}"
        )
    return ""


class _Call(NamedTuple):
    """One call of a program.

    Attributes:
        sizes: The values of the symbols.
        seed: What its inputs are drawn with.
        state: The buffers before.
    """

    sizes: Any
    seed: int
    state: Sequence[torch.Tensor]


def _unexplained(program: Program, call: _Call, wanted: _Result, result: _Result) -> str:
    """Returns how a result differs from eager's, and from the exported program's if the compiler had only that."""
    difference = _difference(wanted, result, program.is_half())
    if not difference or program.how != "program":
        return difference
    module = _exported(program.model(), program).module()
    names = (name for name, _ in program.model().named_buffers())
    buffers = dict(zip(names, call.state, strict=True))
    for name, buffer in module.named_buffers():
        buffer.copy_(buffers.get(name, buffer))
    try:
        value = module(*program.arguments(call.sizes, call.seed))
    except Exception:
        return "the exported program refuses these sizes"
    exported = _Result(value, result.inputs, result.state)
    return _difference(exported, result, program.is_half())


def _is_unstable(program: Program, call: _Call, wanted: _Result) -> bool:
    """Returns whether eager PyTorch itself computes something else from inputs that differ in their last digits."""
    step = 4e-3 if program.is_half() else 4e-6
    for attempt in range(_ATTEMPTS):
        model = program.model()
        generator = torch.Generator().manual_seed(attempt)

        def moved(value: Any, generator: torch.Generator = generator) -> Any:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                noise = 1 + step * torch.randn(value.shape, generator=generator)
                return (value * noise).to(value.dtype)
            return value

        for parameter in model.parameters():
            parameter.data.copy_(moved(parameter.data))
        _restore(model, call.state)
        result = _called(
            model, [moved(value) for value in program.arguments(call.sizes, call.seed)]
        )
        kept = _Result(result.value, wanted.inputs, result.state)
        if _difference(wanted, kept, program.is_half()):
            return True
    return False


@contextlib.contextmanager
def _plain_autocast() -> Iterator[None]:
    """Ends a ``with`` block with autocast off, whatever failed inside of it."""
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", False)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
