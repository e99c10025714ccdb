"""What ``torchtrt.compile`` returns."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import is_grad_enabled
from torch.fx import GraphModule, Tracer
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.utils import _pytree as pytree

from torchtrt.errors import EngineError, InputError
from torchtrt.report import CompilationReport
from torchtrt.runtime.call_signature import CallSignature
from torchtrt.runtime.engine_module import EngineModule
from torchtrt.runtime.input_checks import InputChecks
from torchtrt.runtime.memory_checks import MemoryChecks
from torchtrt.runtime.usage_checks import UsageChecks
from torchtrt.settings import CompilationSettings

# Copies and pickles of a model hold leaves, and making one by its class is deprecated.
copyreg.pickle(pytree.LeafSpec, lambda _: (pytree.tree_structure, (0,)))  # type: ignore[arg-type,return-value]
# What reads a pickled graph: what is computed from buffers alone is computed in each call, and is no constant.
_BufferTracer = type("_BufferTracer", (Tracer,), {"proxy_buffer_attributes": True})


class CompiledModule(torch.nn.Module):
    """A compiled model: called like the original, it runs engines and, for the rest, PyTorch.

    Attributes:
        graph_module: One graph with an :class:`EngineModule` per block; the next call runs what is put here.
        report: What went where and why, which pack converted what, and how long each stage took.
        settings: The settings that it was compiled with.
        input_tree, output_tree, checks, shared_inputs, signature, usage_checks: How it may be called.
        weight_recipes: How the graph's weights follow from the model's, if they can be replaced.

    What a call returns is new memory, never the model's. Only where PyTorch takes a view, and not an
    engine, may results share memory as they do in eager PyTorch: the view of an input with the input,
    two views of one tensor with each other.
    """

    _runner: Any = None
    _replay: Callable[..., Any] | None = None

    def __init__(
        self,
        graph_module: GraphModule,
        input_tree: pytree.TreeSpec,
        output_tree: pytree.TreeSpec,
        checks: InputChecks,
        report: CompilationReport,
        shared_inputs: Collection[int] = (),
        usage_checks: UsageChecks | None = None,
        signature: CallSignature | None = None,
        settings: CompilationSettings | None = None,
        weight_recipes: Mapping[str, Any] | None = None,
        runner: Any = None,
    ) -> None:
        super().__init__()
        self.report = report
        self.input_tree = input_tree
        self.output_tree = output_tree
        self.checks = checks
        self.signature = signature
        self.settings = settings or CompilationSettings()
        self.weight_recipes = weight_recipes
        self.graph_module = graph_module
        self._runner = runner
        self.usage_checks = usage_checks or UsageChecks()
        self.shared_inputs = frozenset(shared_inputs)
        # Nesting and flattening takes longer than a small engine runs: not where nothing nests.
        flat = pytree.tree_structure(((0,) * len(checks.inputs), {}))
        self._flat_inputs = len(checks.inputs) if input_tree == flat else -1
        self._returns_one_leaf = output_tree == pytree.tree_structure(0)
        self.eval()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "graph_module":
            value._tracer_cls = _BufferTracer
            self._memory_checks = MemoryChecks.of(value)
            self._runs_engines_alone = runs_engines_alone(value)
            self._whole_engine = _whole_engine(value) if self._runs_engines_alone else None
        if name in ("graph_module", "_runner"):
            # Inputs that are like others do not tell what memory they share with what the model writes to.
            writes = self._memory_checks is not None
            self._replay = None if writes else getattr(self._runner, "replay", None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what the original model returns.

        Raises:
            InputError: An input's kind, dtype or shape is not what the model was compiled for, or the model writes to
                memory that is given to it under two names.
            EngineError: A weight of the model has changed, or the call is inside another autocast.
        """
        if torch.compiler.is_dynamo_compiling():  # it runs as it is, and is not traced
            return torch.compiler.disable(self._call)(args, kwargs)  # type: ignore[no-untyped-call]
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        is_flat = len(args) == self._flat_inputs and not kwargs
        leaves = args if is_flat else self.flatten(args, kwargs)
        usage = self.usage_checks
        usage.check_surroundings()
        replay = self._replay
        outputs = None if replay is None else replay(self._modules["graph_module"], leaves)
        if outputs is None:
            leaves = self._checked(leaves)
            if self._runs_engines_alone or not is_grad_enabled():
                outputs = self._run(leaves)
            else:
                with torch.no_grad():
                    outputs = self._run(leaves)
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
        if self._memory_checks is not None:
            self.usage_checks.check_weights()
            self._memory_checks.check(leaves, self.graph_module)
        for index in self.shared_inputs:
            leaf = leaves[index]
            if not leaf.is_contiguous():  # as the example was, of which the model made no copy
                leaves = [*leaves[:index], leaf.contiguous(), *leaves[index + 1 :]]
        return leaves

    def _run(self, leaves: Sequence[Any]) -> Sequence[Any]:
        graph_module: Any = self._modules["graph_module"]  # the attribute takes longer
        if self._runner is not None:
            return self._runner(graph_module, leaves)  # type: ignore[no-any-return]
        if self._whole_engine is not None:
            engine = graph_module._modules[self._whole_engine]
            has_hooks = engine._forward_hooks or engine._forward_pre_hooks
            if not (has_hooks or _global_forward_hooks or _global_forward_pre_hooks):
                return engine.forward(*leaves)  # type: ignore[no-any-return]
        # Not a call: hooks and wrappers of the whole are this module's business.
        return graph_module.forward(*leaves)  # type: ignore[no-any-return]

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
        """Returns a call's inputs as the graph takes them; an :class:`InputError` where they nest otherwise."""
        if self.signature is not None:
            args, kwargs = self.signature.arrange(args, kwargs)
        names = [name for name, _ in self.checks.inputs]
        try:
            # Unlike a comparison of trees, this takes dictionaries in any order.
            return self.input_tree.flatten_up_to((args, dict(kwargs)))
        except ValueError as error:
            by_name = {**dict(zip(names, args, strict=False)), **kwargs}
            if len(args) + len(kwargs) == len(names) and by_name.keys() == set(names):
                return [by_name[name] for name in names]  # a program's inputs, given by name
            raise InputError(
                f"The inputs are not as those that the model was compiled for ({', '.join(names)}): {error}"
            ) from None


def runs_engines_alone(graph_module: GraphModule) -> bool:
    """Returns whether PyTorch computes nothing in a compiled model's graph."""
    engines = [n for n, m in graph_module._modules.items() if isinstance(m, EngineModule)]
    called = {node.target for node in graph_module.graph.nodes if node.op.startswith("call_")}
    return called <= {getitem, *engines}


def _whole_engine(graph_module: GraphModule) -> str | None:
    """Returns the name of the engine that takes and returns all that a graph of engines does, if there is one."""
    graph = graph_module.graph
    engines = graph.find_nodes(op="call_module")
    if len(engines) != 1 or list(engines[0].args) != graph.find_nodes(op="placeholder"):
        return None
    engine: Any = graph_module._modules[name := str(engines[0].target)]
    returned: Any = graph.output_node().args[0]
    results = [getattr(node, "target", None) is getitem and node.args for node in returned]
    outputs = [(engines[0], place) for place in range(len(engine.outputs))]
    return name if results == outputs else None
