"""What the TorchScript page shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from torchtrt import torchscript
from torchtrt.torchscript.arguments import Argument

PAGE = (Path(__file__).parents[2] / "docs" / "torchscript.md").read_text()


def test_the_code_of_the_page_runs(tmp_path):
    """One program from top to bottom, in a file, as TorchScript wants its source."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))
    code += "\nprint([(row.op, row.pack) for row in compiled.report.converted])\n"
    program = tmp_path / "page.py"
    program.write_text(code)

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)

    assert "('aten.tanh.default', 'local" in done.stdout


def test_the_page_names_everything_that_there_is():
    """Every public name of the front end, and every way to unwrap an argument."""
    for name in torchscript.__all__:
        assert name in PAGE, name
    for name in (name for name in dir(Argument) if name.startswith("unwrap_to")):
        assert name in PAGE or f"..._{name.removeprefix('unwrap_to_')}" in PAGE, name


def test_the_front_end_is_there_once_torchtrt_is_imported():
    """As the README writes it: ``torchtrt.torchscript.compile``, with no import of its own."""
    program = "import torchtrt; print(torchtrt.torchscript.compile.__module__)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "torchtrt.torchscript.compilation" == done.stdout.strip()
