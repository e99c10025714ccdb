"""The distributions build, and a clean environment with their wheels finds all packs."""

import email
import json
import os
import re
import zipfile
from pathlib import Path

import pytest

from tests.support.processes import ONLY_TORCH, run_python

ROOT = Path(__file__).parents[1]
PARTS = [
    path.parent
    for pattern in ("core", "plugins/*", "plugins/contrib/*")
    for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
]
FOLDERS = [*PARTS, ROOT]


def pip(*arguments, **environment):
    """Runs pip without network access."""
    command = ["-m", "pip", "--disable-pip-version-check", *arguments]
    done = run_python(*command, env={**os.environ, **environment}, libraries=())
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Release wheels of every distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    pip(
        "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--wheel-dir", str(folder), *map(str, FOLDERS), TORCHTRT_RELEASE="1",
    )  # fmt: skip
    return folder


def metadata(wheels, name):
    """Returns the METADATA of a distribution's wheel."""
    (path,) = wheels.glob(f"{name}-0*.whl")
    return metadata_of(path)


def metadata_of(path):
    """Returns the METADATA of a wheel."""
    with zipfile.ZipFile(path) as archive:
        (entry,) = (entry for entry in archive.namelist() if entry.endswith("/METADATA"))
        return archive.read(entry).decode()


def test_the_released_root_pins_its_parts_and_holds_no_code(wheels):
    """It brings one tested set, and paths of a checkout never get into it."""
    text = metadata(wheels, "torchtrt_all")

    required = [
        line
        for line in text.splitlines()
        if line.startswith("Requires-Dist") and "extra" not in line
    ]
    assert len(PARTS) - 1 == len(required)
    assert not [line for line in required if "torchtrt-testing" in line]  # and so no pytest
    assert all(line.endswith("==0.1.0") for line in required)
    assert "file:" not in text
    (path,) = wheels.glob("torchtrt_all-0*.whl")
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".py")]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_wheel_says_whose_it_is_and_what_it_is_for(wheels, folder):
    """An index shows the licence, the authors, the versions of Python, and a page whose links lead somewhere."""
    (name,) = re.findall('^name = "(.+)"$', (folder / "pyproject.toml").read_text(), re.M)
    (path,) = wheels.glob(f"{name.replace('-', '_')}-0*.whl")
    message = email.message_from_string(metadata_of(path))
    classifiers = message.get_all("Classifier")

    assert message["License-Expression"] == "Apache-2.0"
    assert message["Author"] == "The authors of torchtrt"
    assert [
        classifier for classifier in classifiers if classifier.startswith("Development Status :: ")
    ]
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)} <= {
        *classifiers
    }
    assert ("Framework :: Pytest" in classifiers) == (name == "torchtrt-testing")
    # A licence expression takes the place of the classifier, and indexes refuse both.
    assert not [classifier for classifier in classifiers if classifier.startswith("License :: ")]
    with zipfile.ZipFile(path) as archive:
        (licence,) = (
            member for member in archive.namelist() if member.endswith("/licenses/LICENSE")
        )
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    page = message.get_payload()
    assert page.strip()
    assert [] == re.findall(r"\]\((?!https?://|#)[^)]*\)", page)


def test_a_packs_wheel_tells_its_coverage(wheels):
    """What `torchtrt coverage` prints is part of the package."""
    (path,) = wheels.glob("torchtrt_converters_aten_core-0*.whl")
    with zipfile.ZipFile(path) as archive:
        assert "torchtrt_converters_aten_core/coverage.json" in archive.namelist()


def test_the_commands_wheel_has_its_templates(wheels):
    """`torchtrt new-pack` and `explain --html` work where they are installed, and not only in a checkout."""
    folder = ROOT / "plugins/cli/src/torchtrt_cli/pack_template"
    (path,) = wheels.glob("torchtrt_cli-0*.whl")
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if "pack_template" in name}
        assert "torchtrt_cli/explain.html" in archive.namelist()

    assert {f"torchtrt_cli/pack_template/{file.name}" for file in folder.iterdir()} == names


def test_the_root_from_a_checkout_depends_on_the_folders_beside_it(tmp_path):
    """`pip install .` installs this checkout's packs, not released ones."""
    pip(
        "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--wheel-dir", str(tmp_path), str(ROOT),
    )  # fmt: skip

    assert f"torchtrt-core @ {(ROOT / 'core').as_uri()}" in metadata(tmp_path, "torchtrt_all")


def test_installed_wheels_are_found_with_their_provenance(wheels, tmp_path):
    """Separate distributions, installed as a user has them, show up by name and version."""
    pip(
        "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path),
        *map(str, wheels.glob("*.whl")),
    )  # fmt: skip

    # -I would drop PYTHONPATH; -S drops the editable installs of this checkout but torch has to be found.
    code = (
        "import sys; sys.path = [p for p in sys.path if 'src' not in p]; "
        "from torchtrt_cli import main; main(['packs', '--json'])"
    )
    done = run_python(
        "-c", code, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True, cwd=tmp_path
    )

    packs = {row["name"]: row for row in json.loads(done.stdout)["packs"]}
    assert {"aten_core", "aten_experimental", "quantization"} <= set(packs)
    assert all(row["version"] == "0.1.0" for row in packs.values())
    assert all(str(tmp_path) in row["location"] for row in packs.values())


def test_loading_all_packs_imports_nothing_slow():
    """What compiling needs is imported when something is compiled."""
    slow = (
        "rich",
        "sympy",
        "tensorrt",
        "torchtrt_compiler.api",
        "torchtrt_compiler.lowering",
        "torchtrt_reference",
    )
    program = (
        "import sys, torch; before = set(sys.modules); import torchtrt; "
        "assert torchtrt.DYNAMO_CONVERTERS.unique_targets(); "
        f"print(sorted(set({slow!r}) & (set(sys.modules) - before)))"
    )

    done = run_python("-c", program, libraries=ONLY_TORCH, check=True)

    assert "[]" == done.stdout.strip()


@pytest.mark.parametrize(
    ("disabled", "model", "hint"),
    [
        ("reference", "torch.nn.Tanh()", "pip install torchtrt-reference"),
        ("torchscript", "torch.jit.script(torch.nn.Tanh())", "pip install torchtrt-torchscript"),
        (
            "aten_core aten_experimental special quantization distributed",
            "torch.nn.Tanh()",
            "Install torchtrt-all",
        ),
    ],
)
def test_what_is_missing_is_named_when_something_is_compiled(disabled, model, hint):
    """The core alone imports and lists; the error says what to install, and that something was disabled."""
    program = (
        "import warnings; warnings.simplefilter('ignore'); import torch, torchtrt; "
        "torchtrt.DYNAMO_CONVERTERS.display_all_available_converters(); "
        f"torchtrt.compile({model}.eval(), [torch.rand(2)])"
    )
    done = run_python("-c", program, env={**os.environ, "TORCHTRT_PACKS_DISABLE": disabled})

    assert done.returncode
    assert hint in done.stderr or "disabled by TORCHTRT_PACKS_DISABLE" in done.stderr, done.stderr
