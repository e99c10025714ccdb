"""Writes the lists of ops of the first-party packs: one in each pack, and all in the compiler's package.

python -m tools.catalogue
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.import_graph import ROOT, packages
from torchtrt.packs import PACKS, LoadedPack, loaded_packs
from torchtrt.packs.info import FIRST_PARTY_TIER
from torchtrt_compiler.catalogue import FILE, Catalogue, CataloguedPack, write

FIRST_PARTY = ROOT / "plugins/compiler/src/torchtrt_compiler" / FILE


def first_party_packs() -> Mapping[Path, LoadedPack]:
    """Returns the packs of this checkout that are in use, by the folder of the package."""
    folders = {package.name: package.folder for package in packages()}
    return {
        folders[PACKS.package_name(loaded.info.name)]: loaded
        for loaded in loaded_packs()
        if loaded.info.tier <= FIRST_PARTY_TIER
    }


def main() -> None:
    """Writes the files."""
    entries = []
    for folder, loaded in first_party_packs().items():
        entries.append(CataloguedPack.of(loaded))
        write(Catalogue((entries[-1],)), folder / FILE)
    write(Catalogue().updated(Catalogue(tuple(entries))), FIRST_PARTY)


if __name__ == "__main__":
    main()
