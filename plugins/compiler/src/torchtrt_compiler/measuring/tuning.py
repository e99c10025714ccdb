"""Decides by measuring which ops PyTorch runs although TensorRT could.

A library's kernel may be faster than the one that TensorRT has for a GPU, and an engine that ends and begins anew costs
something too. Only the whole model shows the sum of both: so a model is built again without an op, and both are called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import operator
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node

from torchtrt.errors import ProcessGroupError, SettingsError, TorchOp, TorchTRTError
from torchtrt.graphs.nodes import all_nodes, declares_alias, writes
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_compiler.cache.choice import cache_for
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.lowering import lower, open_program, remove_no_ops
from torchtrt_compiler.partitioning.blocks import is_scalar
from torchtrt_compiler.trial_calls import (
    WARM_UPS,
    Clock,
    example_leaves,
    given_leaves,
    unchanged,
    with_given,
)
from torchtrt_runtime import CompiledModule
from torchtrt_runtime.executors.inductor import has_stretches
from torchtrt_runtime.processes.groups import Processes
from torchtrt_runtime.processes.meetings import SharedFailureError, agreed, failing_together
from torchtrt_runtime.processes.shifts import IS_DIVIDED

TRIES = 3
"""The number of ops that are tried. Each builds the model anew."""
SHARE = 0.05
"""The part of the time of all ops, run by PyTorch, that an op must take to be tried."""
RUNS = 3
"""How often that time is measured: the least of an op's times counts."""
MOST = 0.5
"""The part of that time beyond which an op is not tried alone on a GPU, where the whole model is tried."""
GAIN = 0.02
"""The part of a call's time that must be gained: less is chance."""
ROUNDS, ROUND = 7, 0.02
"""How many rounds of calls are measured, and how many seconds each takes."""
ALL_IN_TORCH: Mapping[bool | str, str] = {
    False: "",
    True: ", compiled by Inductor",
    "max-autotune": ", compiled by Inductor with max-autotune",
}
"""How a model without engines is tried: the setting ``inductor``, and its words in the report."""
_MEASURED: Mapping[str, Any] = {
    "reason": "the model is faster so, as tune=True measured",
    "reasons": ("the model is faster so, as tune=True measured",),
    "advice": ("Nothing, or compile without tune=True.",),
}
"""The report's reason for an op that tuning leaves to PyTorch."""
_FAILURES = (TorchTRTError, RuntimeError, IndexError)
"""The errors of compiling without an op and of running it in PyTorch."""


def tuned(
    compile_with: Callable[..., CompiledModule],
    export: Callable[[], ExportedProgram],
    inputs: CallInputs,
    settings: Mapping[str, Any],
) -> CompiledModule:
    """Returns the fastest of several compilations, and reports the time of each.

    The first is compiled as it would be without tuning. Then the op that takes longest in PyTorch stays there, if the
    model is faster so; then the next. Ops that work element by element are not tried: they cost an engine nothing. On
    a GPU, what stays in PyTorch is tried compiled by Inductor, and so is the whole model, as it is and compiled.

    Engines that several compilations have in common are built once: without a cache, a temporary folder keeps them.

    Processes that exchange tensors tune together: the time of a candidate is that of the slowest process.

    Args:
        compile_with: Compiles the model with these settings.
        export: Exports the model.
        inputs: The inputs. Calls are measured with the tensors among them that have the sizes to optimize for, and with
            random numbers, or ones, of these sizes.
        settings: The settings. This function carries out ``tune``.

    Raises:
        SettingsError: ``require_full_compilation`` forbids what tuning is for.
        ProcessGroupError: The model exchanges tensors with other processes, and one of them does not tune it.
    """
    settings = {**settings, "tune": False}
    if settings.get("require_full_compilation"):
        raise SettingsError(
            "tune=True may leave ops in PyTorch, which require_full_compilation=True forbids. Drop one of them."
        )
    with _shared_engines(settings) as shared:
        best = _fastest(compile_with, export, inputs, shared)
    engine_cache = settings.get("engine_cache")
    best.settings = dataclasses.replace(best.settings, engine_cache=engine_cache)
    return best


@contextlib.contextmanager
def _shared_engines(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields settings with a cache of engines: a temporary one where they have none."""
    if settings.get("dryrun") or cache_for(settings.get("engine_cache")) is not None:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="torchtrt-", ignore_cleanup_errors=True) as folder:
        yield {**settings, "engine_cache": folder}


def _fastest(
    compile_with: Callable[..., CompiledModule],
    export: Callable[[], ExportedProgram],
    inputs: CallInputs,
    settings: Mapping[str, Any],
) -> CompiledModule:
    """Returns the fastest of several compilations; the arguments are those of ``tuned``."""
    best = compile_with(**settings)
    if best.settings.dryrun:
        return best
    search = _Search(
        lambda **changed: _without_warnings(compile_with, **{**settings, **changed}),
        functools.partial(_without_warnings, export),
        with_given(example_leaves(best), given_leaves(best, inputs)),
        best,
        best.interface.processes,
        _measuring.get(),
    )
    search.run()
    search.best.executor.drop_calls()  # with inputs of the search
    search.best.report = dataclasses.replace(
        search.best.report,
        in_torch=list(_with_own_reasons(search.best.report.in_torch, best)),
        tried=search.tried,
    )
    return search.best


def _with_own_reasons(entries: Iterable[TorchOp], untuned: CompiledModule) -> Iterator[TorchOp]:
    """Yields what stayed in PyTorch, with the reason that it has without tuning, or that it was measured."""
    asked = {qualified_name(op) for op in untuned.settings.torch_executed_ops}
    before = {entry.op: entry for entry in untuned.report.in_torch}
    for entry in entries:
        if "user-excluded" not in entry.codes or entry.op in asked:
            yield entry
        elif untuned_entry := before.get(entry.op):
            yield dataclasses.replace(untuned_entry, node=entry.node, model_line=entry.model_line)
        else:
            yield dataclasses.replace(entry, **_MEASURED)


def _without_warnings(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what a function returns. Its warnings are repetitions, or are about models without engines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


@dataclass
class _Search:
    """Compiles a model with other settings, and keeps what is faster.

    Attributes:
        compile_with: Compiles with settings changed.
        export: Returns the model as a program.
        leaves: The inputs to measure with, flattened.
        best: The fastest so far.
        processes: The processes that search together; None for one.
        measuring: How it measures, and how much it tries.
        milliseconds: What a call of it took when it was measured last.
        tried: What each attempt took.
    """

    compile_with: Callable[..., CompiledModule]
    export: Callable[[], ExportedProgram]
    leaves: Sequence[Any]
    best: CompiledModule
    processes: Processes | None
    measuring: Measuring
    milliseconds: float = math.inf
    tried: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Measures the model as it was partitioned, then each attempt, and keeps the fastest."""
        agreed(self.processes, "the tuning of a model", True, operator.and_)
        try:
            self.milliseconds = self.measured(self.best)
            self.tried.append(f"as it was partitioned: {self.milliseconds:.3g} ms")
            candidates = self.candidates()
        except _FAILURES as error:
            self.tried.append(f"nothing else, because that fails: {_reason(error)}")
            return
        for op in candidates:
            kept = self.best.settings.torch_executed_ops
            self.attempt(f"with {qualified_name(op)} in PyTorch", torch_executed_ops=kept | {op})
        if self.measuring.is_on_gpu(self.leaves):
            self.try_inductor()
        if self.processes is not None and not self.best.settings.async_tensor_parallel:
            self.try_dividing_rows()

    def candidates(self) -> list[Any]:
        """Returns the ops of engines that PyTorch takes longest for."""
        with self.together("the times of ops"):
            shares = _shares(self.compile_with(dryrun=True), self.leaves, self.measuring.clock)
            return self.worth_a_try(shares)

    def worth_a_try(self, shares: Mapping[Any, float]) -> list[Any]:
        """Returns the ops that take longest, the longest first; ``shares`` has the part of all time of each."""
        most = self.measuring.most if self.measuring.is_on_gpu(self.leaves) else 1.0
        ops = {qualified_name(op): op for op in shares}
        own = {name: shares[op] for name, op in ops.items()}
        agreed_shares = agreed(self.processes, "the times of ops", own, _longest_of_both)
        names = [name for name, share in agreed_shares.items() if SHARE <= share <= most]
        names.sort(key=lambda name: (-agreed_shares[name], name))
        return [ops[name] for name in names if _is_kernel(ops[name])][: self.measuring.tries]

    def together(self, about: str) -> contextlib.AbstractContextManager[None]:
        """Lets what fails in one process fail in all."""
        return failing_together(self.processes, about, _FAILURES)

    def measured(self, compiled: CompiledModule) -> float:
        """Returns the milliseconds of a call in the slowest process."""
        with self.together("a call"):
            return self.measuring.call(compiled, self.leaves, self.processes)

    def holds(self, about: str, statement: bool) -> bool:
        """Returns whether a statement holds in all processes."""
        return agreed(self.processes, about, statement, operator.and_)

    def try_inductor(self) -> None:
        """Tries the compiler of PyTorch: on what is left to PyTorch so far, and on the whole model."""
        settings = self.best.settings
        kept = settings.torch_executed_ops
        has_segments = not settings.inductor and has_stretches(self.best.graph_module)
        if self.holds("the work of Inductor", has_segments):
            what = "with what stays in PyTorch so far compiled by Inductor"
            self.attempt(what, torch_executed_ops=kept, inductor=True)
        ops = kept | ops_of(self.export(), settings)
        for inductor, how in self.measuring.all_in_torch.items():
            what = f"with all in PyTorch{how}"
            compiled = self.attempt(what, torch_executed_ops=ops, inductor=inductor)
            is_last = compiled is not None and not has_stretches(compiled.graph_module)
            if self.holds("the last attempt", is_last):
                break

    def try_dividing_rows(self) -> None:
        """Tries the best model with its rows divided among the processes, if it has all-reduces to divide."""
        kept = self.best.settings
        changed = {
            "torch_executed_ops": kept.torch_executed_ops,
            "inductor": kept.inductor,
            "async_tensor_parallel": True,
        }
        try:
            with self.together("the rows of a model"):
                divided = self.compile_with(dryrun=True, **changed).report.divided
        except _FAILURES as error:
            self.tried.append(f"with rows divided among the processes: fails, {_reason(error)}")
            return
        if any(IS_DIVIDED in line for line in divided):
            self.attempt("with rows divided among the processes", **changed)

    def attempt(self, what: str, **changed: Any) -> CompiledModule | None:
        """Compiles with settings changed, and keeps that if it is faster; returns it unless that failed."""
        try:
            with self.together("a compiled model"):
                compiled = self.compile_with(**changed)
            needed = self.call(compiled, "inductor" in changed)
        except _FAILURES as error:
            self.tried.append(f"{what}: fails, {_reason(error)}")
            return None
        try:
            # Once more, side by side: to record a CUDA graph may make others a tenth slower (docs/benchmarks.md).
            self.milliseconds = self.measured(self.best)
        except _FAILURES as error:  # it ran before
            _raise_unless_shared(error)
        is_better = needed < (1 - self.measuring.gain) * self.milliseconds
        outcome = "kept" if is_better else "not kept"
        self.tried.append(f"{what}: {needed:.3g} ms beside {self.milliseconds:.3g} ms, {outcome}")
        if is_better:
            self.best, self.milliseconds = compiled, needed
        return compiled

    def call(self, compiled: CompiledModule, counts_failures: bool) -> float:
        """Returns the milliseconds of a call.

        Args:
            compiled: The model.
            counts_failures: Whether it fails where Inductor cannot compile it, no matter how fast it is.

        Raises:
            RuntimeError: The model is not what was tried.
        """
        with self.together("a call"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "inductor: ")  # which is reported here
            needed = self.measuring.call(compiled, self.leaves, self.processes)
            if counts_failures and compiled.executor.failures:
                raise RuntimeError(compiled.executor.failures[0])
        return needed


def _longest_of_both(times: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """Returns the longer time of each op that both processes have."""
    return {op: max(spent, others[op]) for op, spent in times.items() if op in others}


def _raise_unless_shared(error: Exception) -> None:
    """Raises the error of a process group, unless all processes have it and go on."""
    is_shared = isinstance(error, SharedFailureError) and not error.is_end
    if isinstance(error, ProcessGroupError) and not is_shared:
        raise error


def _reason(error: Exception) -> str:
    """Returns the beginning of an error after which the search goes on.

    Raises:
        ProcessGroupError: The error is one that not all processes have.
    """
    _raise_unless_shared(error)
    return textwrap.shorten(str(error).partition("\n")[0] or type(error).__name__, 120)


def milliseconds(
    compiled: CompiledModule, leaves: Sequence[Any], processes: Processes | None = None
) -> float:
    """Returns how long a call takes, from one to the next, in the fastest of several rounds.

    Tensors that the model writes to hold their old values afterwards.

    Args:
        compiled: The model.
        leaves: Its inputs, flattened.
        processes: The processes that call it together: the time is that of the slowest one.
    """
    args, kwargs = pytree.tree_unflatten(list(leaves), compiled.input_tree)
    clock = Clock.of(leaves)

    def repeated(count: int) -> None:
        for _ in range(count):
            # The results are dropped: kept ones take memory, and copies.
            compiled(*args, **kwargs)

    def calls(count: int) -> float:
        restore()
        return clock.measure(functools.partial(repeated, count))[1] / count

    with torch.no_grad(), unchanged(compiled.graph_module, leaves) as restore:
        for _ in range(WARM_UPS):
            calls(1)
        count = max(1, min(200, int(ROUND * 1e3 / agreed(processes, "one call", calls(1), max))))
        if any(map(writes, compiled.graph_module.graph.nodes)):  # a cache would overflow
            fastest = min(calls(1) for _ in range(ROUNDS * count))
        else:
            fastest = min(calls(count) for _ in range(ROUNDS))
    return agreed(processes, "a round of calls", fastest, max)


def _are_on_a_gpu(leaves: Sequence[Any]) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_cuda for leaf in leaves)


@dataclass(frozen=True)
class Measuring:
    """How a search measures, and how much it tries. Benchmarks try less, and tests give times.

    Attributes:
        call: Returns the milliseconds of a call with flattened inputs.
        clock: Returns the clock for calls with flattened inputs.
        is_on_gpu: Returns whether calls with flattened inputs run on a GPU, where more is tried.
        tries: The number of ops that are tried.
        most: The part of all time beyond which an op is not tried alone on a GPU.
        gain: The part of a call's time that must be gained.
        all_in_torch: How a model without engines is tried, as in ``ALL_IN_TORCH``.
    """

    call: Callable[[CompiledModule, Sequence[Any], Processes | None], float] = milliseconds
    clock: Callable[[Sequence[Any]], Clock] = Clock.of
    is_on_gpu: Callable[[Sequence[Any]], bool] = _are_on_a_gpu
    tries: int = TRIES
    most: float = MOST
    gain: float = GAIN
    all_in_torch: Mapping[bool | str, str] = field(default_factory=lambda: ALL_IN_TORCH)


_measuring: ContextVar[Measuring] = ContextVar("torchtrt_measuring", default=Measuring())  # noqa: B039


@contextlib.contextmanager
def measuring_by(measuring: Measuring) -> Iterator[None]:
    """Lets searches inside a ``with`` block, in this thread (or task), measure in another way."""
    token = _measuring.set(measuring)
    try:
        yield
    finally:
        _measuring.reset(token)


def _shares(
    partitioned: CompiledModule, leaves: Sequence[Any], clock_of: Callable[[Sequence[Any]], Clock]
) -> dict[Any, float]:
    """Returns the part of the time of all ops of engines that PyTorch takes for each op."""
    runs: list[dict[Any, float]] = []
    with torch.no_grad(), unchanged(partitioned.graph_module, leaves) as restore:
        for _ in range(1 + RUNS):
            restore()
            clock = _OpClock(partitioned.graph_module, clock_of(leaves), {}, is_engine=False)
            clock.run(*leaves)
            runs.append(clock.times)
    # What is loaded on a first call, and a pause in one of them, is not what calls take.
    fastest = {op: min(times[op] for times in runs[1:]) for op in runs[-1]}
    total = sum(fastest.values())
    return {op: spent / total for op, spent in fastest.items()}


def ops_of(
    exported: ExportedProgram, settings: CompilationSettings | None = None
) -> frozenset[Any]:
    """Returns what leaves a program to PyTorch: its ops, those of its branches and loops, and what autocast brings.

    Args:
        exported: The program.
        settings: The settings that it will be compiled with.
    """
    graph_module = open_program(exported).graph_module
    remove_no_ops(graph_module)
    ops = _ops_in(graph_module)
    if settings is not None and settings.autocast is not None:
        kept = dataclasses.replace(settings, torch_executed_ops=ops | settings.torch_executed_ops)
        ops |= _ops_in(lower(exported, kept).graph_module)
    return ops


def _ops_in(graph_module: GraphModule) -> frozenset[Any]:
    targets = {node.target for node in all_nodes(graph_module)}
    return frozenset(target for target in targets if isinstance(target, OpOverload))


def _is_kernel(op: Any) -> bool:
    """Returns whether an op is more than a view, or arithmetic on each element."""
    is_op = isinstance(op, OpOverload) and op is not torch.ops.aten._to_copy.default
    return is_op and torch.Tag.pointwise not in op.tags and not declares_alias(op)


class _OpClock(Interpreter):
    """Runs a partitioned model in PyTorch, and notes the milliseconds of each op that is in a block."""

    def __init__(
        self, module: GraphModule, clock: Clock, times: dict[Any, float], is_engine: bool
    ) -> None:
        super().__init__(module)
        self.clock, self.times, self.is_engine = clock, times, is_engine

    def call_module(self, target: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        block = self.fetch_attr(target)
        return _OpClock(block, self.clock, self.times, is_engine=True).run(*args, **kwargs)

    def run_node(self, n: Node) -> Any:
        is_op = n.op == "call_function" and n.target is not operator.getitem
        if not (self.is_engine and is_op) or is_scalar(n):
            return super().run_node(n)
        result, spent = self.clock.measure(lambda: super(_OpClock, self).run_node(n))
        self.times[n.target] = self.times.get(n.target, 0.0) + spent
        return result
