"""Runs all benchmarks and writes docs/benchmarks.md."""

from __future__ import annotations

import datetime
import os
import platform
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from tests.benchmarks import architectures, compiling, executing, registry
from tests.benchmarks._measure import Row

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"
MARK = "<!-- written by `make bench` up to the next line like this -->"


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
    where = (
        f"Measured on {datetime.date.today():%Y-%m-%d}: {os.cpu_count()} cores ({platform.machine()}), "
        f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__} with "
        f"{torch.get_num_threads()} threads. Medians; what is compared was measured in turn in one run."
    )
    before, _, rest = PAGE.read_text().partition(MARK)
    after = rest.partition(MARK)[2]
    PAGE.write_text(f"{before}{MARK}\n\n{where}\n\n" + "\n".join(sections) + f"\n{MARK}{after}")


if __name__ == "__main__":
    main()
