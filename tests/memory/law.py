"""The law of memory, checked on one program: a value is what it was when the program read it.

A compiled model returns what eager PyTorch returns and leaves inputs and buffers as eager PyTorch leaves them, call
after call. Writing into a result changes nothing that it would not change in eager PyTorch: never the model, and
another result or an input only as there.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

import torchtrt
from tests.memory.programs import Interpreted, Program
from torchtrt.errors import ExportError, InputError, UnsupportedProgramError

CALLS = 3
Run = Callable[..., Sequence[Tensor]]


class Discarded(Exception):
    """PyTorch itself refuses the program."""


def check(program: Program, compile_model: Callable[[Interpreted, Program], Run]) -> str:
    """Checks the law on one program. Returns what became of it: ``right`` or ``refused``.

    Args:
        program: The program.
        compile_model: Compiles its model: ``ahead_of_time`` or ``just_in_time``.

    Raises:
        Discarded: Eager PyTorch, or exporting, refuses the program.
        AssertionError: The law is broken. So it is by an error that is not documented.
    """
    eager, source = program.model(), program.model()
    with torch.no_grad():
        try:
            program.model()(*program.inputs())
        except (RuntimeError, IndexError) as error:
            raise Discarded from error
        try:
            compiled = compile_model(source, program)
            earlier: list[tuple[Tensor, Tensor]] = []
            for _ in range(CALLS):
                theirs, ours = program.inputs(), program.inputs()
                expected, actual = eager(*theirs), compiled(*ours)
                assert_equal("results", expected, actual)
                assert_equal("inputs", theirs, ours)
                assert_equal("state", state(eager), state(source))
                for before, now in earlier:
                    assert torch.equal(before, now), "an earlier result changed"
                written = write_into_results(eager, source, (expected, actual), (theirs, ours))
                earlier += [(result.clone(), result) for result in written]
                for mine, others in zip(state(eager), state(source), strict=True):
                    mine.copy_(others)
        except ExportError as error:
            raise Discarded from error
        except (UnsupportedProgramError, InputError) as error:
            if may_refuse(program, error, compile_model):
                return "refused"
            raise
    return "right"


def may_refuse(program: Program, error: Exception, compile_model: object) -> bool:
    """Returns whether an error is one of those that are documented."""
    message = str(error)
    if compile_model is just_in_time and "is mutated in the forward method" in message:
        return True  # the backend makes constants of buffers
    if (
        "is not in the correct order" in message
    ):  # a fault of PyTorch where a result and what is written are inputs
        return "could not rewrite the program" in message
    if isinstance(error, InputError):
        return program.call != "apart" and "shares memory with" in message
    if "Several of its elements are one place in memory" in message:
        return any(name == "x.expand(2, ...)" for name, _, _ in program.instructions)
    return program.tied == "view" and ("shares memory" in message or "a view of another" in message)


def write_into_results(
    eager: Interpreted,
    source: Interpreted,
    results: tuple[Sequence[Tensor], Sequence[Tensor]],
    inputs: tuple[Sequence[Tensor], Sequence[Tensor]],
) -> list[Tensor]:
    """Fills each result on both sides, checks what that changed, and returns those of the compiled model.

    Results that are the model's own memory are left alone: ``torch.compile`` returns a buffer without asking its
    backend.
    """
    written = []
    constant = [tensor.clone() for tensor in state(source)]
    for index, (theirs, ours) in enumerate(zip(*results, strict=True)):
        before = [tensor.clone() for tensor in (*results[1], *inputs[1])]
        if any(
            shares(ours, tensor) and shares(theirs, other)
            for tensor, other in zip(state(source), state(eager), strict=True)
        ):
            continue
        try:
            theirs.fill_(100.0 + index)
        except RuntimeError:
            continue  # an expanded tensor
        ours.fill_(100.0 + index)
        written.append(ours)
        assert_equal("the result written to", [theirs], [ours])
        assert_equal("the model", constant, state(source))
        after = zip((*results[0], *inputs[0]), (*results[1], *inputs[1]), before, strict=True)
        for expected, actual, unchanged in after:
            assert bool(((actual == unchanged) | (actual == expected)).all()), (
                f"writing into result {index} changed what it does not change in eager PyTorch"
            )
    return written


def shares(first: Tensor, second: Tensor) -> bool:
    """Returns whether two tensors are of one storage."""
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def state(model: torch.nn.Module) -> list[Tensor]:
    """Returns a model's buffers and weights."""
    return list(model.state_dict().values())


def assert_equal(what: str, expected: Sequence[Tensor], actual: Sequence[Tensor]) -> None:
    """Checks tensors, one by one, to the last bit."""
    assert len(expected) == len(actual), what
    for index, (mine, others) in enumerate(zip(expected, actual, strict=True)):
        assert mine.shape == others.shape, f"{what}, {index}"
        assert torch.equal(mine, others), f"{what}, {index}: {mine.tolist()} != {others.tolist()}"


def ahead_of_time(model: Interpreted, program: Program) -> Run:
    """Compiles with ``torchtrt.compile``."""
    with torchtrt.use_tensorrt(f"reference@{program.version}"):
        return torchtrt.compile(
            model,
            program.inputs(),
            min_block_size=program.min_block_size,
            torch_executed_ops=set(program.torch_executed_ops),
        )


def just_in_time(model: Interpreted, program: Program) -> Run:
    """Compiles with ``torch.compile``, on the first call."""
    torch._dynamo.reset()
    options = {
        "min_block_size": program.min_block_size,
        "torch_executed_ops": set(program.torch_executed_ops),
    }
    compiled = torch.compile(model, backend="torchtrt", options=options)

    def run(*inputs: Tensor) -> Sequence[Tensor]:
        with torchtrt.use_tensorrt(f"reference@{program.version}"), quiet():
            return compiled(*inputs)

    return run


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps PyTorch's warnings about its own code to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
