"""The module that ``torchtrt.compile`` returns."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch import is_grad_enabled
from torch.fx import GraphModule, Tracer

from torchtrt.errors import EngineError, InputError, SettingsError, kind_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt.selection import use_module
from torchtrt.torch_internals import pytree
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.memory import MemoryChecks
from torchtrt_runtime.checks.numbers import as_sizes
from torchtrt_runtime.checks.signature import CallSignature
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.modules.execution import Executor, ExecutorChoice
from torchtrt_runtime.processes.groups import Processes, as_broken_exchange
from torchtrt_runtime.processes.meetings import Meeting
from torchtrt_runtime.reports.report import CompilationReport
from torchtrt_runtime.runtime_settings import RuntimeSettings
from torchtrt_runtime.torch_internals import (
    DisableAutocast,
    global_forward_hooks,
    global_forward_pre_hooks,
)
from torchtrt_runtime.weights.model_weights import ModelWeights

# Copies and pickles of a model hold leaves, and making one by its class is deprecated.
copyreg.pickle(pytree.LeafSpec, lambda _: (pytree.tree_structure, (0,)))  # type: ignore[arg-type,return-value]


class _BufferTracer(Tracer):
    """Reads a pickled graph: what is computed from buffers alone is computed in each call, and is no constant."""

    proxy_buffer_attributes = True


@dataclass(frozen=True)
class CallInterface:
    """How a compiled model may be called, and what it returns.

    Attributes:
        input_tree: How ``(args, kwargs)`` nest.
        output_tree: How the outputs nest.
        checks: The kinds, dtypes and sizes of the flattened inputs.
        shared_inputs: The positions of inputs whose memory results may share; they are made contiguous.
        usage_checks: The state of PyTorch and of the model's weights that the engines rely on.
        signature: The parameters of the model's ``forward``; None where only an exported program is known.
        processes: The processes among which the model exchanges tensors; None where it is alone.
    """

    input_tree: pytree.TreeSpec
    output_tree: pytree.TreeSpec
    checks: InputChecks
    shared_inputs: Collection[int] = ()
    usage_checks: UsageChecks = field(default_factory=UsageChecks)
    signature: CallSignature | None = None
    processes: Processes | None = None


class CompiledModule(torch.nn.Module):
    """A compiled model: called like the original, it runs engines and, for the rest, PyTorch.

    Args:
        graph_module: One graph with an ``EngineModule`` per block.
        interface: How the model may be called.
        report: What went where and why, which pack converted what, and how long each stage took.
        settings: The settings that it was compiled with.
        executor_for: Returns what runs the graph, for runtime settings.
        weights: The model's weights, and how the graph's follow from them, if they can be replaced.

    Attributes:
        graph_module: The graph; the next call runs the one that is assigned here.
        executor: The executor; the next call uses the one that is assigned here.
        interface: How the model may be called. Its fields are attributes of this module as well.
        extra_files: The texts that were in the file that it was loaded from, by name.

    The results of a call are new memory, never the model's. Where PyTorch, and not an engine, takes a
    view, results may share memory as they do in eager PyTorch. The view of an input shares it with the
    input, and two views of one tensor with each other.
    """

    executor = Executor()
    _runtime_settings = RuntimeSettings()
    _replay: Callable[..., Any] | None = None

    def __init__(
        self,
        graph_module: GraphModule,
        interface: CallInterface,
        report: CompilationReport,
        settings: CompilationSettings,
        executor_for: ExecutorChoice,
        weights: ModelWeights | None = None,
    ) -> None:
        super().__init__()
        report.inputs = [*interface.checks.lines()]
        self.report = report
        self.extra_files: dict[str, str] = {}
        self.settings = settings
        self.weights = weights
        self.interface = interface
        self.input_tree = interface.input_tree
        self.output_tree = interface.output_tree
        self.checks = interface.checks
        self.signature = interface.signature
        self.usage_checks = interface.usage_checks
        self.shared_inputs = frozenset(interface.shared_inputs)
        self.graph_module = graph_module
        self._executor_for = executor_for
        self.executor = executor_for(settings, False, None)
        # Nesting and flattening takes longer than a small engine runs: not where nothing nests.
        count = len(self.checks.inputs)
        flat = pytree.tree_structure(((0,) * count, {}))
        takes_leaves = self.input_tree == flat and not self.checks.numbers
        self._flat_inputs = count if takes_leaves else -1
        self._returns_one_leaf = self.output_tree == pytree.tree_structure(0)
        self.eval()
        if interface.processes is not None:
            self.register_forward_pre_hook(Meeting(interface.processes))
        stated = RuntimeSettings.of(settings)
        if stated != RuntimeSettings():
            self.runtime_settings = stated

    def __repr__(self) -> str:
        """Returns one line; ``graph_module`` has the parts, and ``report`` says what became of each op."""
        inputs = "".join(f"; {line}" for line in self.report.inputs)
        return f"CompiledModule({self.report.summary}, for {self.report.tensorrt}{inputs})"

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads what PyTorch holds of the model, as any module does. Engines have weights of their own.

        Raises:
            RuntimeError: There are weights that the graph around the engines does not have.
        """
        try:
            return super().load_state_dict(*args, **kwargs)
        except RuntimeError as error:
            raise RuntimeError(
                f"{error}\nThe engines of a compiled model hold its weights. Load them into the model, and give them "
                "to the engines with torchtrt.refit_module_weights(compiled, model)."
            ) from error

    @property
    def runtime_settings(self) -> RuntimeSettings:
        """The settings with which the runtime executes the engines. Assigned settings apply from the next call on.

        Raises:
            SettingsError: The value is no RuntimeSettings, the TensorRT of the engines lacks what a setting needs, or
                the engines have no such profile.
        """
        return self._runtime_settings

    @runtime_settings.setter
    def runtime_settings(self, settings: RuntimeSettings) -> None:
        assigned: object = settings
        if not isinstance(assigned, RuntimeSettings):
            message = (
                f"runtime_settings={assigned!r} is not usable: assign a torchtrt.RuntimeSettings."
            )
            raise SettingsError(message)
        for engine in self._engines():
            with use_module(engine.tensorrt_module):
                settings.check()
        pinned, count = settings.optimization_profile, len(self.checks.profiles)
        if pinned is not None and pinned >= count:
            raise SettingsError(
                f"optimization_profile={pinned} is not usable: the model has {count} profile{'s' * (count > 1)}, "
                "counted from 0."
            )
        self.checks = self.checks.with_pinned_profile(pinned)
        for engine in self._engines():
            engine.reload(runtime_settings=settings)
        if settings.cuda_graphs != self._runtime_settings.cuda_graphs:
            inner = self.executor.inner or self.executor
            self.executor = self._executor_for(self.settings, settings.cuda_graphs, inner)
        self.executor.drop_calls()  # which were captured with the former settings
        self._runtime_settings = settings

    def save_runtime_cache(self) -> None:
        """Keeps the kernels that TensorRT for RTX has compiled so far, in ``runtime_settings.cache``.

        It keeps them by itself when an engine is unloaded, and when the process ends.

        Raises:
            SettingsError: ``runtime_settings.cache`` is None.

        Warns:
            CacheWarning: They cannot be kept.
        """
        for engine in self._engines():
            engine.runtime_settings.save_kernels(engine.plan)

    def _engines(self) -> Iterator[EngineModule]:
        parts = self.graph_module.modules()
        return (module for module in parts if isinstance(module, EngineModule))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "graph_module":
            value._tracer_cls = _BufferTracer
            self._memory_checks = MemoryChecks.of(value)
            self._runs_engines_alone = _runs_engines_alone(value)
            self._whole_engine = _whole_engine(value) if self._runs_engines_alone else None
        if name in ("graph_module", "executor"):
            # Inputs that are like others do not show which memory they share with what the model writes to.
            may_replay = self.executor.captures and self._memory_checks is None
            self._replay = self.executor.replay if may_replay else None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what the original model returns.

        Raises:
            InputError: An input's kind, dtype or shape is not what the model was compiled for, or the model writes to
                memory that is given to it under two names.
            EngineError: A weight of the model has changed, or the call is inside another autocast.
            ProcessGroupError: Another process of the model has ended, or has inputs of other sizes.
        """
        if torch.compiler.is_dynamo_compiling():  # it runs as it is, and is not traced
            return torch.compiler.disable(self._call)(args, kwargs)
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Returns what ``forward`` returns, from a recording where there is one for these inputs."""
        is_flat = len(args) == self._flat_inputs and not kwargs
        leaves = args if is_flat else self.flatten(args, kwargs)
        usage = self.usage_checks
        usage.check_ambient_modes()
        replay = self._replay
        outputs = None if replay is None else replay(self._modules["graph_module"], leaves)
        if outputs is None:
            leaves = self._checked(leaves)
            if usage.was_autocast:
                with torch.no_grad(), DisableAutocast():  # the graph has the casts
                    outputs = self.run_graph(leaves)
            elif self._runs_engines_alone or not is_grad_enabled():
                outputs = self.run_graph(leaves)
            else:
                with torch.no_grad():
                    outputs = self.run_graph(leaves)
        if is_grad_enabled():
            outputs = usage.without_gradients(leaves, outputs)
        if self._memory_checks is None:
            usage.check_weights()  # while the GPU works
        if self._returns_one_leaf:
            return outputs[0]
        return pytree.tree_unflatten(outputs, self.output_tree)

    def _checked(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Returns inputs as the graph takes them."""
        self.checks.check(leaves)
        if self._runtime_settings.overwrite_results:
            for engine in self._engines():
                engine.kept_outputs.release(leaves)
        if self._memory_checks is not None:
            self.usage_checks.check_weights()
            self._memory_checks.check(leaves, self.graph_module)
        for index in self.shared_inputs:
            leaf = leaves[index]
            if not leaf.is_contiguous():  # as the example was, which the model did not copy
                leaves = [*leaves[:index], leaf.contiguous(), *leaves[index + 1 :]]
        return leaves

    def run_graph(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Returns the flattened outputs for flattened inputs that were checked."""
        graph_module: Any = self._modules["graph_module"]  # the attribute takes longer
        if type(self.executor) is Executor and self._whole_engine is not None:
            engine = graph_module._modules[self._whole_engine]
            has_hooks = engine._forward_hooks or engine._forward_pre_hooks
            if not (has_hooks or global_forward_hooks or global_forward_pre_hooks):
                return engine.forward(*leaves)  # type: ignore[no-any-return]
        try:
            return self.executor(graph_module, leaves)
        except RuntimeError as error:
            exchanges = self.interface.processes is not None and not isinstance(error, EngineError)
            broken = as_broken_exchange(error) if exchanges else None
            if broken is None:
                raise
            raise broken from error

    def train(self, mode: bool = True) -> CompiledModule:
        """Returns this module; engines have no training mode.

        Raises:
            EngineError: ``mode`` is true.
        """
        if mode:
            raise EngineError("Engines have no training mode. Train the model, and compile again.")
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> CompiledModule:
        if fn(torch.empty(0)).dtype is not torch.float32:
            message = "The dtype of a compiled model is compiled in. Change the model's, and compile it again."
            raise EngineError(message)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Returns a call's inputs as the graph takes them; an ``InputError`` where they nest otherwise."""
        if self.signature is not None:
            args, kwargs = self.signature.arrange(args, kwargs)
        try:
            # Unlike a comparison of trees, this takes dictionaries in any order.
            leaves = self.input_tree.flatten_up_to((args, dict(kwargs)))
        except ValueError as error:
            names = [name for name, _ in self.checks.inputs]
            by_name = {**dict(zip(names, args, strict=False)), **kwargs}
            if len(args) + len(kwargs) != len(names) or by_name.keys() != set(names):
                problem = _misplaced(names, len(args), kwargs) if self._flat_inputs >= 0 else ""
                raise InputError(
                    f"The inputs are not as those that the model was compiled for ({', '.join(names)}): "
                    f"{problem or error}"
                ) from None
            leaves = [by_name[name] for name in names]  # a program's inputs, given by name
        return as_sizes(leaves, self.checks.numbers)


def check_compiled(value: object, function: str) -> None:
    """Raises an ``InputError`` if what a function of some name was given is no compiled model."""
    if not isinstance(value, CompiledModule):
        raise InputError(
            f"{function}() takes what torchtrt.compile() returned, not {kind_of(value)}."
        )


def _misplaced(names: Sequence[str], count: int, keywords: Mapping[str, Any]) -> str:
    """Returns which inputs are missing, are given twice or do not exist, for ``count`` of them by place."""
    problems = {
        "missing": [name for name in names[count:] if name not in keywords],
        "given twice": [name for name in names[:count] if name in keywords],
        "unknown": [name for name in keywords if name not in names],
    }
    parts = [f"{what}: {', '.join(map(repr, wrong))}" for what, wrong in problems.items() if wrong]
    if count > len(names):
        parts.append(f"{count} are given by place")
    return "; ".join(parts)


def _runs_engines_alone(graph_module: GraphModule) -> bool:
    """Returns whether PyTorch computes nothing in a compiled model's graph."""
    modules = graph_module._modules.items()
    engines = [name for name, module in modules if isinstance(module, EngineModule)]
    called = {node.target for node in graph_module.graph.nodes if node.op.startswith("call_")}
    return called <= {getitem, *engines}


def _whole_engine(graph_module: GraphModule) -> str | None:
    """Returns the name of the engine that takes and returns all that a graph of engines does, if there is one."""
    graph = graph_module.graph
    engines = graph.find_nodes(op="call_module")
    if len(engines) != 1 or list(engines[0].args) != graph.find_nodes(op="placeholder"):
        return None
    name = str(engines[0].target)
    engine: Any = graph_module._modules[name]
    returned: Any = graph.output_node().args[0]
    outputs = [(engines[0], index) for index in range(len(engine.outputs))]
    if not all(getattr(node, "target", None) is getitem for node in returned):
        return None
    return name if [node.args for node in returned] == outputs else None
