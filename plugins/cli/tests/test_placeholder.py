"""The command starts, and says how to repair torchtrt, whatever a placeholder of the same name did to it.

The placeholder is built and installed as package indexes have it: a source distribution with an empty package.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = [
    ROOT / "core",
    *(ROOT / "plugins" / name for name in ("cli", "compiler", "runtime", "triton")),
]
SETUP = (
    "from setuptools import setup\nsetup(name='torchtrt', version='0.0.0', packages=['torchtrt'])\n"
)
SCRIPT, MODULE = ["torchtrt"], ["python", "-m", "torchtrt"]
UNINSTALL = "pip uninstall --yes torchtrt"
REINSTALL = "pip install --force-reinstall --no-deps torchtrt-core==0.1.0"


def pip(*arguments, **options):
    """Runs pip without an index."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder of wheels that stands for a package index: ours, and the placeholder's."""
    folder = tmp_path_factory.mktemp("index")
    source = folder / "source/torchtrt-0.0.0"
    (source / "torchtrt").mkdir(parents=True)
    (source / "torchtrt/__init__.py").touch()
    (source / "setup.py").write_text(SETUP)
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: torchtrt\nVersion: 0.0.0\n")
    archive = folder / "source/torchtrt-0.0.0.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(source, source.name)
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder),
        str(archive), *map(str, PARTS))  # fmt: skip
    return folder


class Environment:
    """A virtual environment, in which only torchtrt is installed; other libraries are this environment's."""

    def __init__(self, folder, index):
        self.folder, self.index = folder, index
        venv.create(folder, symlinks=True)
        (self.packages,) = folder.glob("lib/python*/site-packages")
        libraries = folder / "libraries"
        libraries.mkdir()
        for path in Path(importlib.metadata.distribution("rich").locate_file("")).iterdir():
            if "torchtrt" not in path.name:
                (libraries / path.name).symlink_to(path)
        (self.packages / "libraries.pth").write_text(f"{libraries}\n")
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
            and not name.startswith("TORCHTRT_")
        }

    def pip(self, *arguments):
        """Runs pip for this environment, whose index is the folder."""
        options = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        pip("--python", str(self.folder / "bin/python"), *arguments, env=self.variables | options)

    def install(self, *names):
        """Installs distributions without those that they require."""
        self.pip("install", "--no-deps", "--no-build-isolation", *names)

    def run(self, *command, **variables):
        """Runs a program of this environment."""
        program, *arguments = command
        variables = self.variables | variables
        command = [str(self.folder / "bin" / program), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=variables, cwd=self.folder
        )

    def repair(self, commands):
        """Runs the commands that torchtrt printed, as a person would."""
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "pip"
            self.pip(*arguments)


@pytest.fixture(scope="module")
def with_the_command(tmp_path_factory, index):
    """An environment for all tests."""
    made = Environment(tmp_path_factory.mktemp("installed") / "environment", index)
    made.install(*(f"torchtrt-{path.name}" for path in PARTS[1:]))
    return made


@pytest.fixture
def environment(with_the_command):
    """An environment with the command, and without the core."""
    yield with_the_command
    with_the_command.pip("uninstall", "--yes", "torchtrt", "torchtrt-core")


def overwrite(environment):
    """The placeholder comes after the core."""
    environment.install("torchtrt-core")
    environment.install("torchtrt")


def delete(environment):
    """The placeholder came after the core, and is gone again."""
    overwrite(environment)
    environment.pip("uninstall", "--yes", "torchtrt")


def delete_first(environment):
    """The placeholder came before the core, and is gone again."""
    environment.install("torchtrt")
    environment.install("torchtrt-core")
    environment.pip("uninstall", "--yes", "torchtrt")


def hide(environment):
    """The placeholder comes after a core that is installed editable."""
    environment.install("--editable", str(PARTS[0]))
    environment.install("torchtrt")


def without_core(environment):
    """The placeholder is all that there is."""
    environment.install("torchtrt")


FAULTS = {
    overwrite: ("has overwritten the file torchtrt/__init__.py", [UNINSTALL, REINSTALL]),
    delete: ("The file torchtrt/__init__.py of torchtrt-core is missing", [REINSTALL]),
    delete_first: ("The file torchtrt/__init__.py of torchtrt-core is missing", [REINSTALL]),
    hide: ("hides the file torchtrt/__init__.py", [UNINSTALL]),
    without_core: ("torchtrt-core is not installed", [UNINSTALL, "pip install torchtrt-core"]),
}


@pytest.mark.parametrize(
    "harm",
    [
        overwrite,
        delete,
        *(
            pytest.param(harm_, marks=pytest.mark.slow)
            for harm_ in (delete_first, hide, without_core)
        ),
    ],
    ids=lambda harm: harm.__name__,
)
def test_the_command_names_the_cause_and_what_repairs_it(environment, harm):
    """However it starts; and the commands that it prints do repair it."""
    harm(environment)
    cause, commands = FAULTS[harm]
    # The other states leave no module that Python could start.
    starts = [SCRIPT, MODULE] if harm in (overwrite, delete, delete_first) else [SCRIPT]

    for start in starts:
        shown = environment.run(*start, "packs")
        doctor = environment.run(*start, "doctor")
        answer = environment.run(*start, "doctor", "--json")

        assert (2, "") == (shown.returncode, shown.stdout), shown.stderr
        assert (1, "") == (doctor.returncode, doctor.stderr)
        assert cause in doctor.stdout
        assert doctor.stdout == shown.stderr
        assert commands == re.findall("^    (.+)$", doctor.stdout, re.M)
        (problem,) = json.loads(answer.stdout)["problems"]
        assert "overwritten" == problem["code"]
        assert cause.lower() in problem["what"].lower()
        assert problem["hint"] == f"Run {', then '.join(f'`{command}`' for command in commands)}."

    environment.repair(commands)
    for start in starts:
        assert "torchtrt 0.1.0\n" == environment.run(*start, "--version").stdout


def test_the_doctor_warns_of_a_placeholder_that_did_no_harm_yet(environment):
    """It came before the core, whose file is in place until the placeholder is removed."""
    environment.install("torchtrt")
    environment.install("torchtrt-core")

    def warning():
        """What the doctor reports of what is installed."""
        program = "from torchtrt_cli.installation import *; print([*map(str, installation_problems())], *pieces())"
        return environment.run("python", "-c", program).stdout

    done = environment.run("torchtrt", "doctor", "--no-load", "--json")
    (problem,) = (
        row for row in json.loads(done.stdout)["problems"] if row["code"] == "overwritten"
    )
    assert "pip deletes the file with it" in problem["what"]
    assert f"Run `{UNINSTALL}`, then `{REINSTALL}`." == problem["hint"]
    assert "torchtrt 0.0.0" not in warning().partition("]")[2]  # among our own distributions
    environment.repair([UNINSTALL, REINSTALL])
    assert "placeholder" not in warning()


@pytest.mark.slow
def test_a_core_is_installed_again_from_where_it_came(environment):
    """From its folder; from the repository if the folder was a copy of one; else from an index."""
    environment.install(str(PARTS[0]))
    environment.install("torchtrt")

    def source():
        last = environment.run("torchtrt", "packs").stderr.splitlines()[-1]
        return last.removeprefix("    pip install --force-reinstall --no-deps ")

    assert source() == str(PARTS[0])
    (metadata,) = environment.packages.glob("torchtrt_core-*.dist-info")
    (metadata / "direct_url.json").write_text('{"url": "file:///tmp/gone/core", "dir_info": {}}')
    assert source() == "torchtrt-core==0.1.0"
    everything = environment.packages / "torchtrt_all-0.1.0.dist-info"
    everything.mkdir()
    (everything / "METADATA").write_text("Name: torchtrt-all\nVersion: 0.1.0\n")
    cloned = {"url": "https://example.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    (everything / "direct_url.json").write_text(json.dumps(cloned))
    assert source() == "'git+https://example.org/t.git@c0ffee#subdirectory=core'"
    (everything / "direct_url.json").write_text("[]")
    assert source() == "torchtrt-core==0.1.0"
    shutil.rmtree(everything)


@pytest.mark.slow
def test_a_placeholder_in_another_folder_hides_the_core(environment, tmp_path):
    """As one in the folder of the user: without it, the core's file is there as before."""
    environment.install("torchtrt-core")
    environment.install("--target", str(tmp_path), "torchtrt")

    done = environment.run("torchtrt", "doctor", PYTHONPATH=str(tmp_path))

    assert "hides the file torchtrt/__init__.py" in done.stdout
    assert [UNINSTALL] == re.findall("^    (.+)$", done.stdout, re.M)
