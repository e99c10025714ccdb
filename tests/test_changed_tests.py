"""``make check`` runs the tests that a change needs, and a few parameters of each."""

import subprocess

import pytest

from tests.support.processes import TESTING, run_python
from tools import changed_tests
from tools.changed_tests import ALWAYS, select
from tools.import_graph import ROOT

ATEN = "plugins/aten_core/src/torchtrt_converters_aten_core"


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        (f"{ATEN}/converters/softmax.py", ["plugins/aten_core/tests"]),
        ("core/src/torchtrt/settings.py", ["core/tests"]),
        ("plugins/contrib/torchvision/README.md", ["tests/test_docs.py"]),
        ("plugins/testing/src/torchtrt_testing/loading_effects.py", ["plugins/testing/tests"]),
        (f"{ATEN}/cases/softmax.py", ["plugins/aten_core/tests"]),
        ("plugins/compiler/tests/test_cache.py", ["plugins/compiler/tests/test_cache.py"]),
        ("plugins/runtime/tests/conftest.py", ["plugins/runtime/tests"]),
        ("tests/memory/law.py", ["tests/memory"]),
        ("tests/support/processes.py", ["tests/test_processes.py"]),
        ("docs/cli.md", ["tests/test_docs.py"]),
        ("Makefile", []),
        ("plugins/runtime/tests/test_that_was_removed.py", []),
    ],
)
def test_a_changed_file_asks_for_the_tests_of_its_distribution(path, tests):
    """And for the rules that any change can break."""
    assert (*sorted({*tests, *ALWAYS}),) == select([path]).tests


def test_every_source_file_has_tests_that_are_there():
    """A distribution without tests would pass unseen."""
    files = [
        str(path.relative_to(ROOT))
        for pattern in ("core", "plugins/*", "plugins/contrib/*")
        for path in ROOT.glob(f"{pattern}/src/*/__init__.py")
    ]

    assert files
    assert [] == [path for path in files if len(select([path]).tests) == len(ALWAYS)]


def test_a_changed_module_counts_for_those_that_import_it():
    """A building block is part of each converter that is built with it."""
    modules = select(["plugins/blocks/src/torchtrt_blocks/slicing.py"]).modules

    assert "torchtrt_converters_aten_core.converters.slicing" in modules
    assert "torchtrt_converters_aten_core.converters.softmax" not in modules


def test_changes_are_those_since_main_or_since_the_last_commit(tmp_path):
    """New files are changes, and on ``main`` without changes the last commit is one."""

    def git(*arguments):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(
            ["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    git("init")
    for name in ("first", "second"):
        (tmp_path / name).touch()
        git("add", ".")
        git("commit", "-m", name)
    assert ["second"] == changed_tests.changed_files(tmp_path)

    (tmp_path / "first").write_text("changed")
    assert ["first"] == changed_tests.changed_files(tmp_path)

    git("switch", "-c", "branch")
    git("commit", "-a", "-m", "third")
    (tmp_path / "new").touch()
    assert ["first", "new"] == changed_tests.changed_files(tmp_path)


def collected(*options):
    """Returns the tests that pytest collects."""
    done = run_python(
        *("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options),
        cwd=ROOT,
        libraries=TESTING,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_short_run_has_a_few_parameters_of_each_test_and_all_cases_of_changed_converters():
    """A file that is named runs whole."""
    cases = "plugins/contrib/special/tests/test_conformance.py"
    changed = "--changed-modules=torchtrt_converters_special.decompositions.error_functions"
    options = ("--tensorrt=one", "-k", "a_case_agrees and (erf or bessel)")

    everything = collected(*options, cases)
    short = collected("--at-most=2", *options, cases.rpartition("/")[0])
    with_changes = collected("--at-most=2", changed, *options, cases.rpartition("/")[0])

    erfinv = {name for name in everything if "[aten.erfinv.default" in name}
    assert len(everything) > len(short) == 2
    assert len(erfinv) >= 2
    assert erfinv <= set(with_changes) < set(everything)
    assert everything == collected("--at-most=2", changed, *options, cases)


def test_files_that_import_no_changed_module_have_a_share_of_their_tests():
    """What is far from a change seldom fails by it."""
    folder = "plugins/compiler/tests/partitioning"
    options = ("--at-most=1", "--tensorrt=one", folder)

    everything = collected(*options)
    chosen = collected("--changed-modules=torchtrt_compiler.partitioning", *options)

    near = {name for name in everything if name.startswith(f"{folder}/test_blocks.py")}
    assert near < set(everything)
    assert near <= set(chosen) < set(everything)
