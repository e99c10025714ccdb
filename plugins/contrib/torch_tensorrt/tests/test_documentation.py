"""What the page for Torch-TensorRT's users shows works as it stands there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.processes import run_python
from torchtrt.settings import CompilationSettings
from torchtrt_converters_torch_tensorrt.context import DEFAULTS

PAGE = (Path(__file__).parents[4] / "docs/from-torch-tensorrt.md").read_text()

CHECK = """
assert [row.converter for row in compiled.report.converted] == ["their_converters:hardswish"]
torch.testing.assert_close(compiled(x), model(x))
print("as documented")
"""


def test_the_examples_of_the_page_run(tmp_path):
    """The module is adopted, and its converter converts."""
    theirs, program = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "their_converters.py").write_text(theirs)

    done = run_python(
        *("-W", "error", "-c", program + CHECK),
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TORCHTRT_TENSORRT": "reference"},
    )

    assert "as documented\n" == done.stdout, done.stderr


def test_the_settings_that_the_page_calls_the_same_are_there():
    """And what only Torch-TensorRT has is answered for adopted functions."""
    row = next(line for line in PAGE.splitlines() if line.endswith("| the same |"))
    names = re.findall(r"`(\w+)`", row)

    assert names
    assert not set(names) - set(CompilationSettings.__dataclass_fields__)
    assert not set(DEFAULTS) & set(CompilationSettings.__dataclass_fields__)
