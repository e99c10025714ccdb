"""Names the inputs and outputs of the engine of a model that needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import GraphModule

from torchtrt.callers import warn_caller
from torchtrt.errors import SettingsError, SettingsWarning
from torchtrt.graphs.nodes import name_in_engine
from torchtrt.settings import CompilationSettings
from torchtrt_runtime.plans.whole_engine import obstacles, whole_engine


def name_tensors(
    graph_module: GraphModule, blocks: Mapping[str, GraphModule], settings: CompilationSettings
) -> None:
    """Names the tensors of the one block of a model by the settings, and inputs otherwise as in the model.

    Blocks of a model that needs PyTorch, or several engines, keep the names of their nodes.

    Raises:
        SettingsError: The settings have more or fewer names than the engine has inputs or outputs, or a name of an
            input for an output.
    """
    whole = whole_engine(graph_module)
    if whole is None:
        return
    block = blocks[whole.name].graph
    own = list(whole.input_names.values())
    inputs = _checked("input_names", settings.input_names or own, own)
    defaults = whole.output_names
    count = len(whole.outputs)
    written = list(defaults.values())[count:]
    outputs = tuple(defaults.values()) if written else ()
    if names := settings.output_names:
        unnamed = written if len(names) == count else ()
        described = [*(f"result {index}" for index in range(count)), *written]
        outputs = _checked("output_names", [*names, *unnamed], described)
    if both := set(inputs) & set(settings.output_names):
        raise SettingsError(
            f"output_names has {', '.join(sorted(both))}, which is the name of an input. Give other names, or name "
            "the inputs too, with input_names."
        )
    for node, name in zip(block.find_nodes(op="placeholder"), inputs, strict=True):
        name_in_engine(node, (name,))
    name_by_index = dict(zip(defaults, outputs, strict=False))
    name_in_engine(block.output_node(), [name_by_index[index] for index in sorted(name_by_index)])


def _checked(setting: str, names: Sequence[str], tensors: Sequence[str]) -> tuple[str, ...]:
    if len(names) == len(tensors):
        return tuple(names)
    raise SettingsError(
        f"{setting} has {len(names)} names, and the engine has {len(tensors)} of these tensors: "
        f"{', '.join(tensors)}. Give a name for each, in this order. (Omit inputs that the model does not read.)"
    )


def warn_of_unused_names(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Warns if settings name the tensors of a model that is not one engine."""
    name_settings = [name for name in ("input_names", "output_names") if getattr(settings, name)]
    if name_settings and (reasons := list(obstacles(graph_module))):
        reason = "; ".join(reasons)
        warn_caller(
            f"Settings have no effect here:\n  {' and '.join(name_settings)} names the tensors of a model that is one "
            f"engine. {reason}.",
            SettingsWarning,
        )
