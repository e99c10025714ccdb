"""The report of a pipeline: the components that run on engines, and the reasons of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchtrt_runtime.modules.compiled import CompiledModule


@dataclass(frozen=True)
class ComponentReport:
    """A component of a pipeline, or a module inside of one.

    Attributes:
        component: Its place in the pipeline, such as ``unet`` or ``vae.decoder``.
        class_name: The name of its class.
        programs: The compiled models that run it, each with its ``report``.
        sizes: For each argument of the pipeline's call that it depends on, the range, as text.
        reason: Why PyTorch runs it; empty if engines do.
    """

    component: str
    class_name: str
    programs: tuple[CompiledModule, ...]
    sizes: dict[str, str]
    reason: str

    def __str__(self) -> str:
        """Returns the row as a line of text."""
        where = f"{self.component} ({self.class_name})"
        if self.reason:
            return f"{where}: PyTorch, because {self.reason}"
        in_torch = sum(len(program.report.in_torch) for program in self.programs)
        sizes = ", ".join(f"{argument}={bounds}" for argument, bounds in self.sizes.items())
        count = len(self.programs)
        rest = f", {in_torch} ops in PyTorch" if in_torch else ""
        return f"{where}: {count} program{'s' * (count != 1)}{rest}; {sizes}"


@dataclass(frozen=True)
class PipelineReport:
    """The components of a pipeline. ``print`` shows a line for each, and rich a table.

    Attributes:
        components: A row for each module.
    """

    components: tuple[ComponentReport, ...]

    def __getitem__(self, component: str) -> ComponentReport:
        """Returns the row of a component.

        Raises:
            KeyError: The pipeline has no such component.
        """
        for row in self.components:
            if row.component == component:
                return row
        names = ", ".join(component.component for component in self.components)
        raise KeyError(f"The report has no row {component!r}; it has {names}.")

    def __str__(self) -> str:
        """Returns a line for each component."""
        return "\n".join(map(str, self.components))

    def __rich_console__(self, *_: object) -> Iterator[Any]:
        """Yields a table. Only rich calls this, so rich is installed."""
        from rich.table import Table

        table = Table("component", "class", "programs", "sizes", "in PyTorch because")
        for component in self.components:
            sizes = "\n".join(
                f"{argument}={bounds}" for argument, bounds in component.sizes.items()
            )
            count = str(len(component.programs))
            table.add_row(component.component, component.class_name, count, sizes, component.reason)
        yield table
