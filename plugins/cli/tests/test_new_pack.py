"""A new pack is whole: it is installed, listed, tested and built as docs/publish-a-pack.md says."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from torchtrt_cli import main

PAGE = (Path(__file__).parents[3] / "docs/publish-a-pack.md").read_text(encoding="utf-8")
FOLDER = "torchtrt-converters-vision"
FILES = {
    ".github/workflows/test-and-publish.yml",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "src/torchtrt_converters_vision/__init__.py",
    "src/torchtrt_converters_vision/catalogue.json",
    "src/torchtrt_converters_vision/converters/__init__.py",
    "src/torchtrt_converters_vision/converters/snake.py",
    "src/torchtrt_converters_vision/ops.py",
    "src/torchtrt_converters_vision/py.typed",
    "tests/test_vision.py",
}


def written(folder):
    """Returns the files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("spelling", ["vision", "Vision", "torchtrt-converters-vision"])
def test_a_new_pack_has_these_files(spelling, tmp_path, monkeypatch, capsys):
    """Any spelling of the name; nothing of the template is left in them."""
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["new-pack", spelling])

    assert written(tmp_path / FOLDER) == FILES
    for file in FILES:
        text = (tmp_path / FOLDER / file).read_text(encoding="utf-8")
        assert "$" not in text.replace("${{ matrix.python }}", ""), file
    assert f'cd {FOLDER} && pip install --editable ".[test]" && pytest' in capsys.readouterr().out


def test_a_name_of_several_words_is_spelled_as_each_place_wants(tmp_path, monkeypatch, capsys):
    """The distribution has hyphens."""
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["new-pack", "my-new-ops", "--json"])

    answer = json.loads(capsys.readouterr().out)
    folder = tmp_path / "torchtrt-converters-my-new-ops"
    assert ("my_new_ops", str(folder)) == (answer["pack"], answer["folder"])
    assert set(answer["files"]) == written(folder)
    assert 'name = "torchtrt-converters-my-new-ops"' in (folder / "pyproject.toml").read_text()
    assert "class TestMyNewOps(" in (folder / "tests/test_my_new_ops.py").read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vision!", "Use lower-case letters, digits and single underscores"),
        ("2d", "a letter first"),
        ("my__vision", "single underscores"),
        ("my - vision", "single underscores"),
        ("", "cannot be a pack's name"),
        ("../vision", "cannot be a pack's name"),
        ("class", "no keyword of Python"),
        ("local", "Choose another: my_local"),
        ("aten", "PyTorch's own"),
        ("Aten-Core", "is taken: torchtrt-converters-aten-core 0.1.0 is installed in"),
    ],
)
def test_a_bad_or_taken_name_is_refused(name, words, tmp_path, monkeypatch, capsys):
    """With what to do, and nothing is written."""
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["new-pack", name])

    assert words in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    """A folder, or a file, of that name stays as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "work").write_text("of weeks")

    assert 2 == main(["new-pack", "vision"])

    assert "Move it away, or call the command in another folder." in capsys.readouterr().err
    assert {"work"} == written(tmp_path / FOLDER)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="who may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path, monkeypatch, capsys):
    """And not a traceback."""
    tmp_path.chmod(0o500)
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["new-pack", "vision"])
    assert "cannot be written" in capsys.readouterr().err


@pytest.fixture
def person(tmp_path):
    """A person's shell, in an environment where torchtrt and its tools are installed and nothing can be downloaded."""
    environment, home = tmp_path / "environment", tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    python = environment / "bin/python"
    for name in ("build", "pip", "pytest", "torchtrt", "twine"):
        script = environment / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{python}" -m {name} "$@"\n')
        script.chmod(0o755)
    home.mkdir()
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TORCHTRT_")}
    variables = {
        **inherited,
        "PATH": f"{environment}/bin:{os.environ['PATH']}",
        "HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which pip reads as: do not isolate
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "OMP_NUM_THREADS": "1",
        "PYTEST_ADDOPTS": "--tensorrt=one",  # where the page says no more than `pytest`
    }
    for name in ("PYTHONPATH", "XDG_DATA_HOME"):
        variables.pop(name, None)

    def run(commands):
        script = "set -eu\n" + "\n".join(commands)
        return subprocess.run(
            ["sh", "-c", script], cwd=home, env=variables, capture_output=True, text=True
        )

    run.home = home
    return run


def test_the_tutorial_works_as_it_is_written(person):
    """Each command of the page, one after the other; only what would be downloaded is not."""
    commands = re.findall(r"^\$ (.*)$", PAGE, re.M)
    assert commands.pop(0) == "pip install . ./plugins/testing"  # they are there
    assert "python -m build" in commands
    # An isolated build would download hatchling.
    commands = [command.replace("-m build", "-m build --no-isolation") for command in commands]
    for file, command in (
        (r"src/\S+/coverage\.json", "torchtrt coverage vision.snake"),
        (r"compile_snake\.py", "python compile_snake.py"),
    ):
        shown = re.search(rf"^`({file})`:\n\n```\w+\n(.*?)```", PAGE, re.M | re.S)
        written_file = f"cat > {shown[1]} <<'END'\n{shown[2]}END"
        commands.insert(commands.index(command), written_file)

    done = person(commands)

    folder = person.home / FOLDER
    assert 0 == done.returncode, done.stdout + done.stderr
    assert re.search(r"\bvision\b.*?0\.1\.0.*?in use", done.stdout, re.S)
    assert "torchtrt_converters_vision.converters.snake:snake" in done.stdout
    assert re.search(r"\d+ passed", done.stdout)
    assert "Coverage of vision.snake by vision" in done.stdout
    assert re.search(r"vision\.snake\.default .*vision 0\.1\.0", done.stdout)
    assert done.stdout.count("PASSED") == 2  # twine, of the wheel and of the sdist
    assert "Added torchtrt-converters-vision: 1 op." in done.stdout
    (wheel,) = folder.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "torchtrt_converters_vision/converters/snake.py" in names
    assert "torchtrt_converters_vision/py.typed" in names
    assert [name for name in names if name.endswith("LICENSE")]


PLUGIN_FILES = {
    *(file for file in FILES if "converters/" not in file),
    "src/torchtrt_converters_vision/kernels.py",
    "src/torchtrt_converters_vision/plugins.py",
}


def test_a_new_pack_with_a_plugin_passes_its_own_tests(person):
    """Its op runs in engines by the op's own function, and listings name the plugin."""
    commands = [
        "torchtrt new-pack --plugin vision",
        f"cd {FOLDER}",
        'pip install --editable ".[test]"',
        "pytest",
        "torchtrt converters vision::snake --json",
    ]

    done = person(commands)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert PLUGIN_FILES <= written(person.home / FOLDER)
    assert re.search(r"\d+ passed", done.stdout)
    assert "torchtrt_converters_vision.plugins:plugin[vision::snake]" in done.stdout


@pytest.mark.slow  # mypy reads torch
@pytest.mark.parametrize("options", [[], ["--plugin"]])
def test_a_new_pack_passes_mypy(options, tmp_path, monkeypatch):
    """In its strict mode, with the annotations that the page shows."""
    monkeypatch.chdir(tmp_path)
    main(["new-pack", "vision", *options])
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10"]
    environment = {**os.environ, "MYPYPATH": str(tmp_path / FOLDER / "src")}

    done = subprocess.run(
        [*command, "--package", "torchtrt_converters_vision"],
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.stdout.startswith("Success: no issues found in 4 source files"), done.stdout


def test_the_page_shows_what_is_written(tmp_path, monkeypatch):
    """Word for word, in the files that it names."""
    monkeypatch.chdir(tmp_path)
    main(["new-pack", "vision"])
    shown = re.findall(r"^`(\S+)`:\n\n```python\n(.*?)```", PAGE, re.M | re.S)
    shown = [
        (file, text) for file, text in shown if file != "compile_snake.py"
    ]  # the reader writes it

    assert {"__init__.py", "snake.py", "test_vision.py"} == {Path(file).name for file, _ in shown}
    for file, text in shown:
        assert text == (tmp_path / FOLDER / file).read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    assert toml in (tmp_path / FOLDER / "pyproject.toml").read_text(encoding="utf-8")
    table = set(re.findall(r"^\| `([\w./]+)` \|", PAGE, re.M))
    assert table <= FILES


def test_the_workflow_publishes_without_a_password():
    """Only tags, only after the tests, and with PyPI's trust in the workflow in place of a secret."""
    yaml = pytest.importorskip("yaml")
    file = Path(__file__).parents[1] / "src/torchtrt_cli/pack_template/workflow.template"
    jobs = yaml.safe_load(file.read_text().replace("$$", "$"))["jobs"]

    publish = jobs["publish"]
    assert {"id-token": "write"} == publish["permissions"]
    assert ["test", "build"] == publish["needs"]
    assert "startsWith(github.ref, 'refs/tags/v')" == publish["if"]
    assert "secrets" not in file.read_text()
