"""``torchtrt new-pack NAME``: writes a whole distribution with one op, ready to be tested and published."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from torchtrt import __version__
from torchtrt.errors import PackError
from torchtrt.packs.info import LOCAL, PACKS, is_pack_name, normalize
from torchtrt.packs.scan import scan
from torchtrt_cli.output import answers, print_json

_SHARED = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE",
    "gitignore": ".gitignore",
    "workflow": ".github/workflows/test-and-publish.yml",
    "py.typed": "src/$package/py.typed",
    "catalogue.json": "src/$package/catalogue.json",
}
FILES = {
    **_SHARED,
    "init.py": "src/$package/__init__.py",
    "ops.py": "src/$package/ops.py",
    "converters.py": "src/$package/converters/__init__.py",
    "snake.py": "src/$package/converters/snake.py",
    "test.py": "tests/test_$name.py",
}
"""The templates of a pack with a converter, and where what they become is written."""
PLUGIN_FILES = {
    **_SHARED,
    "plugin_init.py": "src/$package/__init__.py",
    "plugin_ops.py": "src/$package/ops.py",
    "plugin_kernels.py": "src/$package/kernels.py",
    "plugin_plugins.py": "src/$package/plugins.py",
    "plugin_test.py": "tests/test_$name.py",
}
"""The templates of a pack with a plugin, whose op has a kernel of its own."""

_REPEATED = re.compile(r"[-_.\s]{2}")
"""Characters that become one underscore: a name is written as it will be."""

OF_PYTORCH = frozenset({"aten", "at", "prim", "prims", "torch", "pytorch"})
"""Names that PyTorch keeps for its own ops."""


def run(arguments: argparse.Namespace) -> int:
    """Writes the pack and prints what to do next."""
    name = checked_name(arguments.name)
    folder, files = write_pack(name, Path.cwd(), PLUGIN_FILES if arguments.plugin else FILES)
    if arguments.json:
        print_json({"pack": name, "folder": str(folder), "files": files})
        return 0
    lines = [f"{folder.name}/", *(f"  {file}" for file in files), ""]
    lines.append(f'Next: cd {folder.name} && pip install --editable ".[test]" && pytest')
    print("\n".join(lines), file=answers())
    return 0


def checked_name(text: str) -> str:
    """Returns the pack's name that a user means.

    Raises:
        PackError: It cannot be one, or it is taken.
    """
    name = normalize(text)
    if not is_pack_name(name) or _REPEATED.search(text.strip()):
        hint = "Use lower-case letters, digits and single underscores, a letter first, no keyword of Python: my_ops."
        raise PackError(f"{text!r} cannot be a pack's name. {hint}")
    if name == LOCAL or name in OF_PYTORCH:
        whose = "torchtrt" if name == LOCAL else "PyTorch"
        raise PackError(f"The name {name!r} is {whose}'s own. Choose another: my_{name}.")
    for extension in scan().packs:
        if extension.info.name == name:
            raise PackError(
                f"The name {name!r} is taken: {extension.info.origin} is installed in {extension.info.location}. "
                "Choose another name, or uninstall it."
            )
    return name


def write_pack(name: str, where: Path, files: Mapping[str, str] = FILES) -> tuple[Path, list[str]]:
    """Writes a pack's distribution into a new folder; returns it and the files in it.

    Args:
        name: The pack's name.
        where: Where the folder is written.
        files: The templates, and where what they become is written.

    Raises:
        PackError: The folder exists, or cannot be written.
    """
    folder = where / PACKS.distribution_name(name)
    major, minor = map(int, __version__.split(".")[:2])
    words = {
        "name": name,
        "title": "".join(part.capitalize() for part in name.split("_")),
        "distribution": folder.name,
        "package": PACKS.package_name(name),
        "versions": f">={major}.{minor},<{major}.{minor + 1}",
        "year": str(datetime.date.today().year),
    }
    templates = resources.files("torchtrt_cli") / "pack_template"
    written = []
    try:
        folder.mkdir()
        for template, path in files.items():
            file = folder / Template(path).substitute(words)
            text = (templates / f"{template}.template").read_text(encoding="utf-8")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Template(text).substitute(words), encoding="utf-8", newline="\n")
            written.append(file.relative_to(folder).as_posix())
    except FileExistsError:
        hint = "Move it away, or call the command in another folder."
        raise PackError(f"There is already something at {folder}. {hint}") from None
    except OSError as error:
        raise PackError(f"{folder} cannot be written: {error}.") from error
    return folder, sorted(written)
