"""``torchtrt.export_engine``: the plan of a compiled model as a file, for other tools of TensorRT."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torchtrt.errors import InputError, UnsupportedProgramError
from torchtrt.expressions.values import holds
from torchtrt_runtime.checks.tensors import TensorCheck
from torchtrt_runtime.modules.compiled import CompiledModule, check_compiled
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.plans.description import as_text, beside, describe_plan
from torchtrt_runtime.plans.whole_engine import obstacles, whole_engine
from torchtrt_runtime.processes.groups import collectives_in
from torchtrt_runtime.serialization.engine_metadata import buffer_of
from torchtrt_runtime.serialization.files import complete_file
from torchtrt_runtime.size_ranges import Profile


def export_engine(
    compiled: CompiledModule,
    path: str | os.PathLike[str],
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Writes the plan of a model that is one engine, and its description in ``<path>.json``.

    TensorRT fixes the names of inputs and outputs when it builds an engine: the settings ``input_names`` and
    ``output_names`` of ``torchtrt.compile`` give them.

    Args:
        compiled: What ``torchtrt.compile`` or ``torchtrt.load`` returned.
        path: The file of the plan. Both files appear complete or not at all.
        input_names: The names that the inputs must have, in the order of the model's; any if omitted.
        output_names: The names that the outputs must have, in the order of the model's outputs; any if omitted.

    Raises:
        UnsupportedProgramError: The model is not one engine, or PyTorch computes or checks something of it: the
            message has each reason.
        InputError: ``compiled`` is something else, or the engine has other names.
        EngineError: A weight of the model has changed since it was compiled.
        UnwritableFileError: There can be no file at this path.
    """
    check_compiled(compiled, "torchtrt.export_engine")
    if compiled.settings.dryrun:
        raise InputError("The model was compiled with dryrun, which builds no engine.")
    compiled.usage_checks.check_weights()
    check_exportable(compiled)
    whole = whole_engine(compiled.graph_module)
    assert whole is not None
    engine: EngineModule = compiled.graph_module.get_submodule(whole.name)  # type: ignore[assignment]
    description = describe_plan(compiled, whole)
    for what, wanted in (("input", input_names), ("output", output_names)):
        _check_names(what, wanted, [tensor["name"] for tensor in description[f"{what}s"]])
    if input_names is None:
        _check_own_names(compiled, description["inputs"])
    plan = Path(path)
    with complete_file(beside(plan)) as json_file, complete_file(plan) as plan_file:
        json_file.write_text(as_text(description), encoding="utf-8", newline="\n")
        plan_file.write_bytes(memoryview(buffer_of(engine.plan)))


def check_exportable(compiled: CompiledModule) -> None:
    """Checks that a compiled model, or a dry run, is one engine.

    Raises:
        UnsupportedProgramError: It is not, or PyTorch computes or checks something of it.
    """
    if reasons := list(_obstacles(compiled)):
        lines = "".join(f"\n  {reason}." for reason in reasons)
        raise UnsupportedProgramError(
            f"A plan holds one engine, and this model is more than that:{lines}\n"
            "Change the model, or keep all of it in a file of torchtrt.save."
        )


def _obstacles(compiled: CompiledModule) -> Iterator[str]:
    """Yields the reasons why a compiled model is no plan, each a sentence without a period."""
    yield from obstacles(compiled.graph_module, compiled.settings.dryrun)
    if compiled.settings.strip_engine_weights:
        yield "Its engine has no weights (strip_engine_weights), and other tools have none to give to it"
    if exchanges := collectives_in(compiled.graph_module):
        ops = ", ".join(sorted({exchange.op for exchange in exchanges}))
        yield f"It exchanges tensors with other processes ({ops}), whose places a plan does not hold"
    report = compiled.report
    yield from (
        f"{entry.node} ({entry.op}) stays in PyTorch: {entry.reason.rstrip('.')}"
        for entry in report.in_torch
        if "write" not in entry.codes  # the graph shows who computes the new value
    )
    yield from (split.rstrip(".") for split in report.splits)
    checks = compiled.checks
    open_conditions = [guard for guard in checks.guards if not _follows(guard, checks.profiles)]
    for condition in dict.fromkeys(map(checks.as_code, open_conditions)):
        yield f"PyTorch checks that {condition}, a condition under which the model was exported"
    for name, wanted in checks.inputs:
        if isinstance(wanted, TensorCheck) and wanted.memory is not None:
            yield f"The model reads the memory of {name!r} by strides, and PyTorch checks that it is {wanted.memory}"


_MOST_SIZES = 4096
"""For how many sizes a condition is evaluated."""


def _follows(condition: Any, profiles: Sequence[Profile]) -> bool:
    """Returns whether a condition on one size holds for each size of the profiles, which the engine checks itself."""
    if len(condition.free_symbols) != 1:
        return False
    (symbol,) = condition.free_symbols
    ranges = [profile[symbol] for profile in profiles if symbol in profile]
    if len(ranges) != len(profiles) or any(
        range_.max - range_.min > _MOST_SIZES for range_ in ranges
    ):
        return False
    sizes = (size for range_ in ranges for size in range(range_.min, range_.max + 1))
    return all(holds(condition, {symbol: size}) for size in sizes)


def _check_names(what: str, wanted: Sequence[str] | None, names: Sequence[str]) -> None:
    """Checks that an engine has the names that are wanted, if any are."""
    if isinstance(wanted, str):
        raise InputError(
            f"{what}_names={wanted!r} is one text. Give a sequence of names: [{wanted!r}]."
        )
    if wanted is not None and list(wanted) != list(names):
        asked = ", ".join(map(str, wanted)) or "none"
        raise InputError(
            f"The {what}s of the engine are named {', '.join(names)}, and {what}_names asks for {asked}. TensorRT "
            f"fixes names when it builds an engine: compile the model with {what}_names={list(wanted)!r}."
        )


def _check_own_names(compiled: CompiledModule, inputs: Sequence[dict[str, str]]) -> None:
    """Checks that an engine from a cache has the names of this model's inputs, and not those of the one it is of."""
    names, own = [input_["name"] for input_ in inputs], [input_["model_input"] for input_ in inputs]
    if not compiled.settings.input_names and names != own:
        raise InputError(
            f"The engine is from a cache, and was built for a model whose inputs are named {', '.join(names)}, and not "
            f"{', '.join(own)}. Compile with input_names={own!r}, or export with input_names={names!r}."
        )
