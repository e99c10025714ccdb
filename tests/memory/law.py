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
        compile_model: Compiles its model.

    Raises:
        Discarded: Eager PyTorch, or exporting, refuses the program.
        AssertionError: The law is broken.
    """
    eager, source = program.model(), program.model()
    with torch.no_grad():
        try:
            program.model()(*program.inputs(program.call))
        except (RuntimeError, IndexError) as error:
            raise Discarded from error
        try:
            compiled = compile_model(source, program)
        except ExportError as error:
            raise Discarded from error
        except UnsupportedProgramError as error:
            assert program.tied != "apart" or "several elements" in str(error), error
            assert "memory" in str(error) or "a view of another" in str(error), error
            return "refused"
        earlier: list[tuple[Tensor, Tensor]] = []
        for _ in range(CALLS):
            theirs, ours = program.inputs(program.call), program.inputs(program.call)
            expected = eager(*theirs)
            try:
                actual = compiled(*ours)
            except InputError as error:
                assert program.call != "apart", error
                assert "shares memory with" in str(error), error
                return "refused"
            assert_equal("results", expected, actual)
            assert_equal("inputs", theirs, ours)
            assert_equal("state", state(eager), state(source))
            for before, now in earlier:
                assert torch.equal(before, now), "an earlier result changed"
            write_into_results(eager, source, (expected, actual), (theirs, ours))
            earlier += [(result.clone(), result) for result in actual]
            for mine, others in zip(state(eager), state(source), strict=True):
                mine.copy_(others)
    return "right"


def write_into_results(
    eager: Interpreted,
    source: Interpreted,
    results: tuple[Sequence[Tensor], Sequence[Tensor]],
    inputs: tuple[Sequence[Tensor], Sequence[Tensor]],
) -> None:
    """Fills each result on both sides, and checks what that changed."""
    constant = [tensor.clone() for tensor in state(source)]
    for place, (theirs, ours) in enumerate(zip(*results, strict=True)):
        before = [tensor.clone() for tensor in (*results[1], *inputs[1])]
        try:
            theirs.fill_(100.0 + place)
        except RuntimeError:
            continue  # an expanded tensor
        ours.fill_(100.0 + place)
        assert_equal("the result written to", [theirs], [ours])
        assert_equal("the model", constant, state(source))
        after = zip((*results[0], *inputs[0]), (*results[1], *inputs[1]), before, strict=True)
        for expected, actual, unchanged in after:
            assert bool(((actual == unchanged) | (actual == expected)).all()), (
                f"writing into result {place} changed what it does not change in eager PyTorch"
            )


def state(model: torch.nn.Module) -> list[Tensor]:
    """Returns a model's buffers and weights."""
    return list(model.state_dict().values())


def assert_equal(what: str, expected: Sequence[Tensor], actual: Sequence[Tensor]) -> None:
    """Checks tensors, one by one, to the last bit."""
    assert len(expected) == len(actual), what
    for place, (mine, others) in enumerate(zip(expected, actual, strict=True)):
        assert mine.shape == others.shape, f"{what}, {place}"
        assert torch.equal(mine, others), f"{what}, {place}: {mine.tolist()} != {others.tolist()}"


def ahead_of_time(model: Interpreted, program: Program) -> Run:
    """Compiles with :func:`torchtrt.compile`."""
    with torchtrt.use_tensorrt(f"reference@{program.version}"):
        return torchtrt.compile(
            model,
            program.inputs(program.call),
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
