"""What a person can use is documented and used in a test, and what the pages show runs."""

import ast
import dataclasses
import importlib
import json
import re
from pathlib import Path

import pytest

import torchtrt_cli
from tests.support.processes import run_python
from tools import peer_page, settings_page
from torchtrt import CompilationSettings, errors
from torchtrt.packs import hooks

ROOT = Path(__file__).parents[1]


def texts(*patterns):
    """Returns the files of the repository that match a pattern, as one text."""
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)} - {Path(__file__)}
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(paths))


PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("docs/*.md"))}
TESTS = texts("tests/**/*.py", "core/tests/**/*.py", "plugins/**/tests/**/*.py")
CODE = texts("core/src/**/*.py", "plugins/**/src/**/*.py")
PACKS = texts("core/src/torchtrt/packs/*.py", "core/src/torchtrt/registry/*.py")


def hook_names():
    """Returns the hooks that a pack may implement."""
    return [name for name in vars(hooks) if name.startswith("torchtrt_")]


def setting_names():
    """Returns the settings of a compilation."""
    return [field.name for field in dataclasses.fields(CompilationSettings)]


def environment_variables():
    """Returns the variables that the code reads."""
    return sorted(set(re.findall(r"TORCHTRT_[A-Z_]*[A-Z]", CODE)))


def problem_codes():
    """Returns the codes of problems: nothing else in these folders is a literal with one hyphen, or ``shadowed``."""
    return sorted(set(re.findall(r'"([a-z]+-[a-z]+|shadowed)"', PACKS)))


@pytest.mark.parametrize(
    "name", [*hook_names(), *setting_names(), *environment_variables(), *problem_codes()]
)
def test_a_public_name_is_used_in_a_test(name):
    """Hooks, settings, environment variables and codes of problems."""
    assert re.search(rf"\b{re.escape(name)}\b", TESTS)


def test_every_command_is_run_in_a_test(capsys):
    """The commands are those that ``torchtrt --help`` lists."""
    with pytest.raises(SystemExit):
        torchtrt_cli.main(["--help"])
    commands = re.findall(r"^    ([a-z-]+)(?:  |$)", capsys.readouterr().out, re.MULTILINE)

    assert {"packs", "converters", "explain"} <= set(commands)
    assert [] == [command for command in commands if f'"{command}"' not in TESTS]


def test_every_setting_and_variable_is_in_a_table_of_settings():
    """And none that does not exist."""
    rows = re.findall(r"^\| (`.*?`) \|", PAGES["settings.md"], re.MULTILINE)

    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(setting_names()) == {name for name in names if name.islower()}
    variables = {name for name in names if name.isupper()}
    assert set(environment_variables()) == {
        *variables,
        "TORCHTRT_LOWERED",
    }  # one of Torch-TensorRT's


def test_the_tables_of_settings_are_those_of_the_declarations():
    """``python -m tools.settings_page`` writes them."""
    assert settings_page.page() == PAGES["settings.md"]


def test_the_table_of_capabilities_is_that_of_the_data():
    """``python -m tools.peer_page`` writes it; what is not here has a reason, or the way round."""
    assert peer_page.page() == PAGES["peer-capabilities.md"]
    rows = json.loads(peer_page.DATA.read_text())
    assert [] == [row["capability"] for row in rows if row["state"] != "here" and not row["note"]]


def test_every_exception_and_warning_is_in_a_table():
    """And none that does not exist, so that users who catch one find when it is raised."""
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGES["errors.md"], re.MULTILINE))

    assert raised - {"TorchTRTError"} == rows


CODE_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CACHE = """
import os

os.environ["TORCHTRT_CACHE"] = os.path.abspath("cache")
"""
TESTED_ELSEWHERE = {
    "executorch.md": "plugins/contrib/executorch/tests/test_executorch.py runs its block where ExecuTorch is installed",
    "diffusion.md": "plugins/contrib/diffusers/tests/test_documentation.py runs it where diffusers is installed",
    "from-torch-tensorrt.md": "plugins/contrib/torch_tensorrt/tests/test_documentation.py adopts its module",
    "quantized-models.md": "plugins/contrib/quantization/tests/test_documentation.py runs its blocks",
    "ray.md": "tests/test_ray.py runs its blocks on a cluster",
    "several-gpus.md": "tests/test_two_ranks.py starts its program in two processes",
    "publish-a-pack.md": "plugins/cli/tests/test_new_pack.py installs, tests and builds it",
}


QUOTED = re.compile(r"# ((?:core|plugins)/\S+\.py)\n(.*)", re.DOTALL)
"""A block that shows a part of a file: its first line is the path, the rest is in the file as it stands."""


def pages_with_code():
    """Returns the pages that show Python."""
    return [name for name, text in PAGES.items() if CODE_BLOCK.search(text)]


SLOW = {"generate.md"}
"""Pages whose code compiles several models for twenty seconds: tests of their pack make the same calls."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in SLOW else ())
        for page in pages_with_code()
        if page not in TESTED_ELSEWHERE
    ],
)
def test_the_code_of_a_page_runs(page, tmp_path):
    """From the first block to the last, as one program, with warnings as errors."""
    blocks = [block for block in CODE_BLOCK.findall(PAGES[page]) if not QUOTED.match(block)]
    program = tmp_path / "page.py"
    program.write_text("\n".join((CACHE, *blocks)), encoding="utf-8")

    done = run_python("-W", "error::UserWarning", program, cwd=tmp_path)

    assert 0 == done.returncode, done.stderr


def test_pages_that_are_tested_elsewhere_show_code():
    """So that nothing is excused that is not there."""
    assert set(TESTED_ELSEWHERE) <= set(pages_with_code())


@pytest.mark.parametrize("name", sorted(PAGES))
def test_code_is_no_wider_than_its_column(name):
    """On a screen of 1280 pixels, a wider line scrolls. ``docs/ruff.toml`` has the same width."""
    page = re.sub(r"^```mermaid\n.*?^```\n", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    assert [] == [line for block in blocks for line in block.splitlines() if len(line) > 87]


def test_quoted_code_is_in_its_file():
    """A page that shows a part of the repository follows it."""
    quotes = [
        QUOTED.match(block)
        for page in PAGES.values()
        for block in CODE_BLOCK.findall(page)
        if QUOTED.match(block)
    ]

    assert 5 <= len(quotes)
    for path, code in (quote.groups() for quote in quotes):
        assert code in (ROOT / path).read_text(encoding="utf-8"), path


def test_every_module_of_building_blocks_is_on_their_page():
    """The page shows their docstrings, so each public function has one."""
    folder = ROOT / "plugins/blocks/src/torchtrt_blocks"
    modules = {
        path.stem: ast.parse(path.read_text(encoding="utf-8"))
        for path in folder.glob("[!_]*.py")
        if path.stem != "torch_internals"
    }
    shown = re.findall(r"^::: torchtrt_blocks\.(\w+)$", PAGES["building-blocks.md"], re.M)
    public = [
        (name, name_)
        for name, tree in modules.items()
        for name_ in tree.body
        if isinstance(name_, ast.FunctionDef) and not name_.name.startswith("_")
    ]

    assert sorted(modules) == sorted(shown)
    for name, name_ in public:
        text, names = ast.get_docstring(name_) or "", [arg.arg for arg in name_.args.args]
        assert text, f"{name}.{name_.name}"
        if names[:1] == ["ctx"] and not re.search(r"arguments are ``", text):
            missing = [
                arg for arg in names if f"    {arg}: " not in text and f"\n{arg}: " not in text
            ]
            assert not missing, f"{name}.{name_.name} does not document {missing}"


def test_building_blocks_named_on_a_page_exist():
    """The guide names them as a converter calls them: ``<module>.<function>``."""
    table = (
        PAGES["write-a-converter.md"]
        .partition("## Use the building blocks")[2]
        .partition("\n## ")[0]
    )
    names = set(re.findall(r"`(\w+)\.(\w+)`", table))

    assert names
    for module, name in sorted(names):
        blocks = importlib.import_module(f"torchtrt_blocks.{module}")
        assert callable(getattr(blocks, name, None)), f"{module}.{name}"
