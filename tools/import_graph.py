"""The structure of the project's packages, read from their imports: those in functions and for types included."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Package:
    """An import package of one of the distributions.

    Attributes:
        name: Its name.
        folder: Where it is.
    """

    name: str
    folder: Path

    def modules(self) -> dict[str, Path]:
        """Returns every module by its dotted name."""
        paths = {}
        for path in sorted(self.folder.rglob("*.py")):
            parts = (self.name, *path.relative_to(self.folder).with_suffix("").parts)
            paths[".".join(parts).removesuffix(".__init__")] = path
        return paths

    def dependencies(self) -> dict[str, set[str]]:
        """Returns for each module the modules of the package that it imports."""
        modules = self.modules()
        return {name: set(_resolved(path, modules)) for name, path in modules.items()}

    def top_level(self, module: str) -> str:
        """Returns the folder or file under the package's root that a module is in; its own name for the root."""
        return module.split(".")[1] if "." in module else self.name


def packages() -> list[Package]:
    """Returns the packages of all distributions of the project."""
    folders = sorted(
        source
        for pattern in ("core", "plugins/*", "plugins/contrib/*")
        for source in ROOT.glob(f"{pattern}/src/*")
        if (source / "__init__.py").is_file()
    )
    return [Package(folder.name, folder) for folder in folders]


def importers(module: str) -> set[str]:
    """Returns a module and those of all packages that import it directly or through others."""
    modules = {name: path for package in packages() for name, path in package.modules().items()}
    direct = {name: set(_resolved(path, modules)) for name, path in modules.items()}
    for name, names in direct.items():  # importing a module of another package imports that package
        names |= {other.split(".")[0] for other in names} - {name.split(".")[0]}
    importing, new = {module}, {module}
    while new:
        new = {name for name, names in direct.items() if names & new} - importing
        importing |= new
    return importing


def _resolved(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yields the modules that a file imports, itself or a name of."""
    for name in imported(path):
        if name in modules:
            yield name
        elif (parent := name.rpartition(".")[0]) in modules:
            yield parent


def imported(path: Path) -> Iterator[str]:
    """Yields the names that a file imports."""
    for level, name in _imported(path):
        assert level == 0, f"{path} imports relatively"
        yield name


@functools.cache
def nodes_of(path: Path) -> Sequence[ast.AST]:
    """Returns the nodes of a module's syntax tree, in the order of ``ast.walk``: several tests ask for them."""
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


@functools.cache
def _imported(path: Path) -> Sequence[tuple[int, str]]:
    """Returns the names that a module imports, each with the number of dots before it."""
    imports = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports += [(node.level, f"{node.module}.{alias.name}") for alias in node.names]
    return imports


def circles(direct: Mapping[str, set[str]]) -> list[str]:
    """Returns the modules that import themselves through others."""
    circular = []
    for module in direct:
        pending, seen = list(direct[module]), set[str]()
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += direct[name]
        if module in seen:
            circular.append(module)
    return circular
