"""``torchtrt cache``: the engines that were kept, and a way to be rid of them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime

from torchtrt.errors import SettingsError
from torchtrt_cli.output import console, print_json, table
from torchtrt_compiler.cache.folder import open_folder


def run(arguments: argparse.Namespace) -> int:
    """Prints what a cache holds, or clears it."""
    cache = open_folder(arguments.folder or True)
    if arguments.folder and not cache.folder.is_dir():
        raise SettingsError(f"There is no folder {cache.folder}, so no engines are kept there.")
    freed = cache.clear() if arguments.clear else 0
    entries = cache.entries()
    size = sum(entry.bytes for entry in entries)
    if arguments.json:
        print_json(
            {
                "folder": str(cache.folder),
                "limit": cache.limit,
                "bytes": size,
                "freed": freed,
                "engines": [asdict(entry) for entry in entries],
            }
        )
        return 0
    out = console()
    if arguments.clear:
        out.print(f"Removed {freed / 1e6:,.1f} MB from {cache.folder}.")
        return 0
    out.print(
        f"{len(entries)} engines in {cache.folder}: {size / 1e6:,.1f} MB of at most {cache.limit / 1e6:,.0f} MB."
    )
    rows = [
        (
            entry.key[:12],
            entry.tensorrt,
            entry.gpu,
            entry.nodes,
            f"{entry.bytes / 1e6:,.1f}",
            datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M"),
        )
        for entry in entries
    ]
    if rows:
        out.print(table("Engines", ("key", "TensorRT", "GPU", "nodes", "MB", "used"), rows))
    return 0
