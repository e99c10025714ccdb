"""Runs all benchmarks and writes docs/benchmarks.md."""

from __future__ import annotations

import warnings

from rich.console import Console
from rich.progress import track

from tests.benchmarks import architectures, compiling, dynamic_sizes, executing, registry
from tests.benchmarks._measure import Row, circumstances, write_section


def table(rows: list[Row]) -> str:
    """Returns rows as a Markdown table."""
    lines = ["| what | result | target |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.what} | {row.result} | {row.target} |" for row in rows)])


def main() -> None:
    """Measures, prints and writes the page."""
    warnings.simplefilter("ignore")
    console = Console()
    sections = []
    for title, module in track(
        (
            ("Registry and import", registry),
            ("Compiling", compiling),
            ("Dynamic sizes", dynamic_sizes),
            ("Converting architectures", architectures),
            ("Running on the reference TensorRT", executing),
        ),
        console=Console(stderr=True),
    ):
        rows = list(module.measure())
        sections.append(f"## {title}\n\n{(module.__doc__ or '').strip()}\n\n{table(rows)}\n")
        console.print(f"[bold]{title}[/bold]")
        for row in rows:
            console.print(f"  {row.what}: {row.result}  {row.target}")
    where = f"{circumstances()} Medians; what is compared was measured in turn in one run."
    write_section("make bench", f"{where}\n\n" + "\n".join(sections))


if __name__ == "__main__":
    main()
