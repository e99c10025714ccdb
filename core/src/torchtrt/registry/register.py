"""What a program registers itself, and the questions that a compilation asks about all packs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from torchtrt.contract import AutocastRule, Validator, qualified_function
from torchtrt.errors import PackError
from torchtrt.packs import ConverterPriority, PackInfo, current_packs
from torchtrt.packs.pack import Function
from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.state import local_pack
from torchtrt.registry.registry import DYNAMO_CONVERTERS
from torchtrt.registry.table import Decompositions
from torchtrt.settings import CompilationSettings
from torchtrt.targets import Target


@dataclass(frozen=True, slots=True)
class PackPass:
    """A pass over the graph, and the pack that it comes from."""

    name: str
    function: Callable[..., Any]
    pack: PackInfo

    def __str__(self) -> str:
        return f"{self.name} of {self.pack.name} {self.pack.version}".rstrip()


def dynamo_tensorrt_converter(
    key: Target,
    *,
    enabled: bool = True,
    capability_validator: Validator | None = None,
    unless: Validator | Sequence[Validator] = (),
    priority: ConverterPriority = ConverterPriority.STANDARD,
    supports_dynamic_shapes: bool = False,
    requires_output_allocator: bool = False,
    keep_constants: bool = False,
    tensorrt: str = "",
) -> Callable[[Function], Function]:
    """Returns a decorator that registers a function as a converter of this program, in the pack named ``local``.

    The arguments are those of :meth:`torchtrt.packs.ConverterPack.converter`. It may be used at any
    time.
    """
    return local_pack.converter(
        key,
        enabled=enabled,
        capability_validator=capability_validator,
        unless=unless,
        priority=priority,
        supports_dynamic_shapes=supports_dynamic_shapes,
        requires_output_allocator=requires_output_allocator,
        keep_constants=keep_constants,
        tensorrt=tensorrt,
    )


def register_torch_trt_decomposition(
    target: Target | str,
    *,
    enabled: bool = True,
    priority: ConverterPriority = ConverterPriority.STANDARD,
) -> Callable[[Function], Function]:
    """Returns a decorator that registers a decomposition of this program, in the pack named ``local``.

    The arguments are those of :meth:`torchtrt.packs.ConverterPack.decomposition`.
    """
    return local_pack.decomposition(target, enabled=enabled, priority=priority)


def get_graph_converter_support(
    gm: GraphModule, torch_executed_ops: Iterable[Target | str] = frozenset()
) -> tuple[int, int]:
    """Returns how many of the graph's calls have a converter, and how many calls there are.

    Args:
        gm: The graph.
        torch_executed_ops: Ops that stay in PyTorch, in any spelling.
    """
    settings = CompilationSettings.from_keywords(torch_executed_ops=torch_executed_ops)
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    supported = sum(bool(DYNAMO_CONVERTERS.resolve(node, settings)) for node in calls)
    return supported, len(calls)


def decompositions() -> Decompositions:
    """Returns for each op the decomposition in use, and the pack that it comes from.

    The order law holds here too: the first pack in pack order has the op, and ``HIGH`` overrides
    it.
    """
    return DYNAMO_CONVERTERS.decompositions()


@contextlib.contextmanager
def export_contexts() -> Iterator[None]:
    """Enters what packs export models inside of, in pack order.

    Raises:
        PackError: A pack's raises; the message names the pack.
    """
    with contextlib.ExitStack() as stack:
        for loaded in current_packs().loaded:
            for context in loaded.pack.export_contexts:
                try:
                    stack.enter_context(context())
                except Exception as error:
                    what = f"{qualified_function(context)} raised {describe(error)}"
                    raise PackError(str(Problem(what).about(loaded.info))) from error
        yield


def autocast_rules() -> Mapping[str, AutocastRule]:
    """Returns the rule of each op that has one, by its qualified name: that of the first pack in pack order."""
    rules: dict[str, AutocastRule] = {}
    for loaded in current_packs().loaded:
        for op, rule in loaded.pack.autocast_rules:
            rules.setdefault(op, rule)
    return rules


def lowering_passes() -> tuple[PackPass, ...]:
    """Returns the packs' passes in the order in which they run: by pack order, then as registered."""
    return tuple(
        PackPass(lowering_pass.name, lowering_pass.function, loaded.info)
        for loaded in current_packs().loaded
        for lowering_pass in loaded.pack.lowering_passes
    )
