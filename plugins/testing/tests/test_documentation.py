"""docs/test-a-pack.md describes the whole kit, and its examples run."""

import re
import shutil
from pathlib import Path

import torchtrt_testing
from tests.support.processes import TESTING, run_python
from torchtrt.testing import PackConformance, op_case

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/test-a-pack.md").read_text(encoding="utf-8")


def test_every_name_is_documented():
    """And so are the attributes of the class and the arguments of a case."""
    attributes = {
        name
        for name in vars(PackConformance)
        if not name.startswith(("_", "test_", "pytest_"))
        and name not in ("loaded", "registrations")
    }
    cells = set(re.findall(r"^\| `(\w+)[^`]*` \|", PAGE, re.M))

    assert {name for name in torchtrt_testing.__all__ if name not in PAGE} == {"OpCase"}
    assert attributes | set(op_case.__kwdefaults__) == cells


def test_the_examples_run(tmp_path):
    """As they stand on the page, with warnings as errors."""
    for index, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.S)):
        (tmp_path / f"test_{index}.py").write_text(block)
    (tmp_path / "pyproject.toml").touch()
    shutil.copy(ROOT / "plugins/contrib/quantization/README.md", tmp_path)

    command = ["-m", "pytest", "-q", "-W", "error", "-k", "agrees or gelu or readme or tanh"]
    done = run_python(*command, cwd=tmp_path, libraries=TESTING)

    assert 0 == done.returncode, done.stdout
    assert re.search(r"\b13 passed", done.stdout), done.stdout
