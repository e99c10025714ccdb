"""``torchtrt catalogue``, and ``torchtrt packs --available`` and ``--search``: packs that may not be installed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from torchtrt.errors import CatalogueError
from torchtrt.packs.info import PACKS, normalize
from torchtrt.packs.scan import scan
from torchtrt_cli.output import answers, console, print_json, table
from torchtrt_compiler import catalogue
from torchtrt_compiler.catalogue import Catalogue, CataloguedPack

_OPS = 6
"""The maximum number of ops of a pack that a table shows."""


def run(arguments: argparse.Namespace) -> int:
    """Changes the user's catalogue, or writes the file of a pack."""
    subject: str = arguments.subject
    if arguments.action == "add":
        added = catalogue.add(subject)
        names = [pack.distribution for pack in added.packs]
        told = [f"Added {_described(pack)}." for pack in added.packs]
        path = catalogue.own_folder()
    elif arguments.action == "remove":
        names = [catalogue.remove(subject)]
        told = [f"Removed {names[0]}."]
        path = catalogue.own_folder()
    else:
        pack, path = write(subject)
        names = [pack.distribution]
        told = [f"Wrote {_described(pack)} to {path}."]
    if arguments.json:
        print_json({"action": arguments.action, "distributions": names, "path": str(path)})
    else:
        print("\n".join(told), file=answers())
    return 0


def write(name: str) -> tuple[CataloguedPack, Path]:
    """Writes the list of ops of a pack in use into its package, and returns its entry and the file.

    Raises:
        CatalogueError: No such pack is in use.
        UnwritableFileError: The file cannot be written.
    """
    from torchtrt.packs import loaded_packs  # which loads packs

    loaded = next((pack for pack in loaded_packs() if pack.info.name == normalize(name)), None)
    if loaded is None or not loaded.info.distribution:
        hint = "`torchtrt packs` lists those that are, and says why others are not."
        raise CatalogueError(f"No pack {name!r} from a distribution is in use. {hint}")
    package = resources.files(PACKS.package_name(loaded.info.name))
    path = Path(str(package / catalogue.FILE))
    pack = CataloguedPack.of(loaded)
    catalogue.write(Catalogue((pack,)), path)
    return pack, path


def show(arguments: argparse.Namespace) -> int:
    """Prints the packs of the catalogue that are not installed, or those with a text."""
    installed = {pack.info.name for pack in scan().packs}
    selection = catalogue.current_catalogue()
    if arguments.available:
        selection = selection.without(installed)
    if arguments.search is not None:
        selection = selection.search(arguments.search)
    if arguments.json:
        entries = [
            {**asdict(pack), "installed": pack.name in installed} for pack in selection.packs
        ]
        print_json({"packs": entries})
    elif selection.packs:
        rows = [
            (
                pack.distribution,
                "installed" if pack.name in installed else "not installed",
                _some(pack.ops) if arguments.search is not None else len(pack.ops) or "-",
                pack.summary,
            )
            for pack in selection.packs
        ]
        headings = ("distribution", "status", "ops", "summary")
        console().print(table("Packs of the catalogue", headings, rows))
    elif arguments.search is None:
        print("Every pack of the catalogue is installed.", file=answers())
    else:
        which = "that is not installed " if arguments.available else ""
        print(f"No pack of the catalogue {which}has {arguments.search!r}.", file=answers())
    return 0 if selection.packs else 1


def _some(ops: tuple[str, ...]) -> str:
    more = [f"and {len(ops) - _OPS} more"] if len(ops) > _OPS else []
    return "\n".join((*ops[:_OPS], *more)) or "-"


def _described(pack: CataloguedPack) -> str:
    return f"{pack.distribution}: {len(pack.ops)} op{'' if len(pack.ops) == 1 else 's'}"
