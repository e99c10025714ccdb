"""The repository keeps its own rules: versions, names, layout."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_python
from tools.changed_tests import git
from torchtrt.packs.info import ENTRY_POINT_GROUPS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[1]
PROJECTS = {
    str(path.parent.relative_to(ROOT)): tomllib.loads(path.read_text())
    for path in sorted(
        [
            ROOT / "pyproject.toml",
            ROOT / "core/pyproject.toml",
            *ROOT.glob("plugins/**/pyproject.toml"),
        ]
    )
}
PIECES = {folder: project for folder, project in PROJECTS.items() if folder.startswith("plugins")}
GROUPS = {group.name: group for group in ENTRY_POINT_GROUPS}


def test_all_distributions_share_one_version():
    """One number is released for all."""
    assert 1 == len({project["project"]["version"] for project in PROJECTS.values()})


@pytest.mark.parametrize("folder", PIECES)
def test_a_pieces_names_follow_from_each_other(folder):
    """Distribution, entry point and import package are one name in three spellings."""
    project = PIECES[folder]["project"]
    package = f"torchtrt_{Path(folder).name}"
    if "scripts" in project:
        assert project["scripts"] == {"torchtrt": f"{package}:main"}
        return
    if "entry-points" not in project:  # other distributions import it
        assert project["name"] == package.replace("_", "-")
        assert (ROOT / folder / "src" / package / "py.typed").is_file()
        return
    ((group, entries),) = project["entry-points"].items()
    ((name, module),) = entries.items()
    if group not in GROUPS:  # PyTorch or pytest finds it, under our name
        assert {"torch_dynamo_backends": "torchtrt", "pytest11": "torchtrt"}[group] == name
        assert re.split("[.:]", module)[0] == package
        return
    declared = GROUPS[group]

    assert Path(folder).name == name
    assert declared.distribution_name(name) == project["name"]
    assert declared.package_name(name) == re.split("[.:]", module)[0]
    assert (ROOT / folder / "src" / declared.package_name(name) / "py.typed").is_file()


@pytest.mark.parametrize("folder", PIECES)
def test_a_piece_requires_one_minor_version_of_each_piece_that_it_imports(folder):
    """The contract may change with a minor version before 1.0."""
    project = PIECES[folder]["project"]
    major, minor, _ = project["version"].split(".")
    bounds = f">={major}.{minor},<{major}.{int(minor) + 1}"
    declared = [line for line in project.get("dependencies", []) if line.startswith("torchtrt")]
    sources = (ROOT / folder / "src").rglob("*.py")
    imports = re.compile(r"^(?:from|import) (torchtrt\w*)", re.MULTILINE)
    packages = {name for path in sources for name in imports.findall(path.read_text())}
    own = project["name"]
    needed = {
        "torchtrt-core" if name == "torchtrt" else name.replace("_", "-") for name in packages
    }

    extra = project.get("optional-dependencies", {}).get("tests", [])  # for the cases of ops
    assert all(line.endswith(bounds) for line in (*declared, *extra))
    assert needed - {own} <= {line.removesuffix(bounds) for line in (*declared, *extra)}


@pytest.mark.parametrize("folder", PROJECTS)
def test_a_distribution_supports_the_promised_pythons(folder):
    """Python 3.10 and later, in every distribution."""
    assert ">=3.10" == PROJECTS[folder]["project"]["requires-python"]


def test_the_core_requires_no_tensorrt():
    """TensorRT is an extra: everything imports and runs without it."""
    core = PROJECTS["core"]["project"]

    assert not any(line.startswith("tensorrt") for line in core["dependencies"])
    assert ["tensorrt>=8.6"] == core["optional-dependencies"]["tensorrt"]


def test_importing_torchtrt_imports_no_tensorrt():
    """Nothing imports the real TensorRT before it is used."""
    code = "import sys, torchtrt; print('tensorrt' in sys.modules)"

    done = run_python("-c", code, check=True)

    assert "False" == done.stdout.strip()


def test_the_reference_stands_alone():
    """The reference TensorRT imports nothing from the rest of torchtrt."""
    sources = (ROOT / "plugins/reference/src").rglob("*.py")
    imports = {
        name
        for path in sources
        for name in re.findall(r"^\s*(?:from|import) (torchtrt[\w.]*)", path.read_text(), re.M)
    }

    assert all(name.startswith("torchtrt_reference") for name in imports), imports


PLACEHOLDER = re.compile(r"pip3? install[^`\n]*?[ \"']torchtrt(?![-\w./])")
"""A command that installs the empty package which somebody else has on the public index."""


def test_nothing_tells_anyone_to_install_the_placeholder():
    """No page, message or template; nor a link to its page on the index."""
    texts = {
        path: (ROOT / path).read_text(encoding="utf-8")
        for path in git("ls-files", "*.md", "*.py", "*.toml", "*.template")
        if path not in ("CHANGELOG.md", "tests/test_repository.py") and (ROOT / path).is_file()
    }

    assert len(texts) > 1000
    assert PLACEHOLDER.search('pip install "torchtrt[rtx]"')
    assert PLACEHOLDER.search("pip install --upgrade torchtrt")
    assert not PLACEHOLDER.search("pip install torchtrt-all")
    for path, text in texts.items():
        assert not PLACEHOLDER.search(text), path
        assert "pypi.org/project/torchtrt/" not in text, path


MOST_LINES = 500
FOLDERS = ("core", "docs", "notes", "plugins", "tests", "tools")
"""What this repository keeps; other folders belong to tools."""


def test_no_module_is_too_long_to_read():
    """Tests included: a file that has outgrown its subject is divided by subject."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in paths}

    assert len(lengths) > 500
    assert {} == {path: length for path, length in lengths.items() if length > MOST_LINES}


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_between_pages_lead_somewhere(path):
    """A relative link in a page names a file of this repository."""
    targets = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", path.read_text())

    assert [] == [target for target in targets if not (path.parent / target).exists()]
