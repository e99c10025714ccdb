"""The packs' passes over graphs, and the contexts in which packs export models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from torchtrt.contract import qualified_function
from torchtrt.errors import (
    InputError,
    PackError,
    ProcessGroupError,
    SettingsError,
    TorchTRTError,
    UnsupportedProgramError,
    did_you_mean,
)
from torchtrt.packs import PackInfo, current_packs
from torchtrt.packs.load import PackSet
from torchtrt.packs.problem import Problem, describe
from torchtrt.settings import CompilationSettings


@dataclass(frozen=True, slots=True)
class PackPass:
    """A pass over the graph, and the pack that it comes from. With ``last`` it runs behind the passes of all packs."""

    name: str
    function: Callable[..., Any]
    pack: PackInfo
    last: bool = False

    @property
    def qualified_name(self) -> str:
        """Its name behind that of the pack: ``"aten_core.autocast"``."""
        return f"{self.pack.name}.{self.name}"

    def __str__(self) -> str:
        return f"{self.name} of {self.pack.label}"

    def run(self, graph_module: GraphModule, settings: CompilationSettings) -> None:
        """Rewrites a graph.

        Raises:
            UnsupportedProgramError: The pass refuses the model.
            ProcessGroupError: The processes of the model do not agree.
            InputError: The batches for calibration do not fit the model.
            SettingsError: A setting that the pass reads is unusable.
            PackError: The pass raised something else, or returned another graph.
        """
        try:
            result = self.function(graph_module, settings)
        except (
            UnsupportedProgramError, ProcessGroupError, InputError, SettingsError, KeyboardInterrupt,
        ):  # fmt: skip
            raise
        except BaseException as error:  # SystemExit too, which would end the program without a word
            what = describe(error, qualified_function(self.function))
            raise PackError(
                f"The lowering pass {self} raised {what}. {self.pack.advice}"
            ) from error
        if result is not None and result is not graph_module:
            raise PackError(
                f"The lowering pass {self} returned {type(result).__name__}, which nothing reads: a pass changes "
                f"the graph that it is given, and returns nothing. {self.pack.advice}"
            )


@contextlib.contextmanager
def export_contexts() -> Iterator[None]:
    """Enters what packs export models inside of, in pack order.

    Raises:
        PackError: A pack's raises; the message names the pack.
    """
    with contextlib.ExitStack() as stack:
        for loaded in current_packs().loaded:
            for context in loaded.pack.export_contexts:
                stack.enter_context(_ExportContext(context, loaded.info))
        yield


class _ExportContext:
    """A pack's context, which hides no error of what runs inside."""

    def __init__(self, function: Callable[..., Any], pack: PackInfo) -> None:
        self.function = function
        self.pack = pack
        self.entered = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._named():
            self.entered.enter_context(self.function())

    def __exit__(self, *raised: Any) -> None:
        with self._named(raised[1]):
            self.entered.__exit__(*raised)

    @contextlib.contextmanager
    def _named(self, from_inside: BaseException | None = None) -> Iterator[None]:
        """Gives errors of the context itself the name of the pack."""
        try:
            yield
        except BaseException as error:
            # A context may say of the model's error what it means, or find what the model cannot have.
            if error is from_inside or isinstance(error, (KeyboardInterrupt, TorchTRTError)):
                raise
            where = qualified_function(self.function)
            what = f"{where} raised {describe(error, where)}"
            raise PackError(str(Problem(what, self.pack.advice).about(self.pack))) from error


def enabled_passes(settings: CompilationSettings) -> tuple[PackPass, ...]:
    """Returns the passes that a compilation runs: all but those that ``disabled_passes`` names.

    Raises:
        SettingsError: It names a pass that no pack in use has.
    """
    passes = lowering_passes()
    names = {pass_.qualified_name for pass_ in passes}
    for name in sorted(settings.disabled_passes - names):
        advice = did_you_mean(name, names, "torchtrt.registry.lowering_passes() lists them.")
        raise SettingsError(
            f"disabled_passes has {name!r}, and no pack in use has this pass. {advice}"
        )
    return tuple(pass_ for pass_ in passes if pass_.qualified_name not in settings.disabled_passes)


def lowering_passes() -> tuple[PackPass, ...]:
    """Returns the packs' passes in the order in which they run: by pack order, then as registered.

    Passes that are registered with ``last`` come behind those of all packs.
    """
    return passes_of(current_packs())


def passes_of(packs: PackSet) -> tuple[PackPass, ...]:
    """Returns the passes of some packs in the order of ``lowering_passes``."""
    passes = (
        PackPass(step.name, step.function, loaded.info, step.last)
        for loaded in packs.loaded
        for step in loaded.pack.lowering_passes
    )
    return tuple(sorted(passes, key=lambda step: step.last))
