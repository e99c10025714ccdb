"""Sites: folders with real distributions of converter packs in them, made from wheels."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.processes import COMPILING, run_python

CORE_SOURCE = Path(__file__).parents[1] / "src"

PACK_MODULE = """
from torchtrt.packs import ConverterPack, ConverterPriority, hookimpl

pack = ConverterPack({name!r}{arguments})


@hookimpl
def torchtrt_converter_pack():
    return pack


@hookimpl
def torchtrt_register_converters(pack):
    def convert(ctx, target, args, kwargs, name):
        return None

{body}
"""


def pack_source(name: str, body: str = "pass", arguments: str = "") -> str:
    """Returns the source of a well-formed ``_pack.py`` whose register hook runs ``body``."""
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return PACK_MODULE.format(name=name, arguments=arguments, body=indented)


class Site:
    """A folder to put on ``sys.path``, and the distributions to install into it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "site"
        self.path.mkdir(parents=True)
        self._wheels = folder / "wheels"
        self._wheels.mkdir()

    def wheel(
        self,
        name: str,
        source: str,
        *,
        version: str = "1.0",
        modules: Mapping[str, str] | None = None,
        distribution: str | None = None,
        entry_points: str | None = None,
    ) -> Path:
        """Returns the wheel of a distribution with one pack.

        Args:
            name: The pack's name.
            source: The source of its entry-point module.
            version: The distribution's version.
            modules: The sources of further modules of its package.
            distribution: The distribution's name, if it is not the right one.
            entry_points: The text of ``entry_points.txt``, if it is not the right one.
        """
        package = f"torchtrt_converters_{name}"
        distribution = distribution or f"torchtrt-converters-{name.replace('_', '-')}"
        stem = f"{distribution.replace('-', '_')}-{version}"
        files = {
            f"{package}/__init__.py": "",
            f"{package}/_pack.py": source,
            **{f"{package}/{path}.py": text for path, text in (modules or {}).items()},
            f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
            f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
            f"{stem}.dist-info/entry_points.txt": entry_points
            or f"[torchtrt.converters]\n{name} = {package}._pack\n",
        }
        record = f"{stem}.dist-info/RECORD"
        files[record] = "".join(f"{path},,\n" for path in (*files, record))
        wheel = self._wheels / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return wheel

    def unpack(self, *wheels: Path) -> None:
        """Installs pure wheels the short way: an installer would copy the same files."""
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.path)
        # Python takes a source of the same length, written in the same second, for the one that it compiled.
        for compiled in self.path.rglob("__pycache__"):
            shutil.rmtree(compiled)
        importlib.invalidate_caches()

    def pip_install(self, *wheels: Path) -> None:
        """Installs wheels as a person would."""
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        options = ["--no-compile", "--disable-pip-version-check", "--target", str(self.path)]
        subprocess.run([*command, *options, *map(str, wheels)], check=True, capture_output=True)

    def run(
        self,
        *arguments: str,
        timeout: float | None = None,
        libraries: Sequence[str] = COMPILING,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a Python with the site, and torchtrt, on its path and without ``TORCHTRT_*`` from outside.

        Args:
            *arguments: The interpreter's arguments.
            timeout: Seconds after which the process is killed.
            libraries: What the process may have imported before it starts; nothing means a new interpreter.
            **variables: Environment variables.
        """
        return run_python(
            *arguments, env=self.environment(**variables), timeout=timeout, libraries=libraries
        )

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Starts such a Python, whose standard error can be read while it runs."""
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment(**variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def environment(self, **variables: str) -> dict[str, str]:
        """Returns the environment of such a Python."""
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("TORCHTRT_")
        }
        path = os.pathsep.join((str(self.path), str(CORE_SOURCE)))
        return {**inherited, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}


@pytest.fixture(scope="session")
def source_of_pack() -> Callable[..., str]:
    """Writes the source of a well-formed ``_pack.py``."""
    return pack_source


@pytest.fixture(scope="session")
def session_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site for a whole test session."""
    return Site(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on this process's ``sys.path``, for one test. Modules imported from it are forgotten afterwards."""
    made = Site(tmp_path)
    monkeypatch.syspath_prepend(made.path)
    yield made
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(made.path)):
            del sys.modules[name]
