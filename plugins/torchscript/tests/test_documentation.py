"""What the TorchScript page shows works as it stands there."""

import re
from pathlib import Path

import torchtrt_torchscript as torchscript
from tests.support.processes import run_python
from torchtrt_torchscript.node_arguments import Argument

PAGE = (Path(__file__).parents[3] / "docs" / "torchscript.md").read_text()


def test_the_code_of_the_page_runs(tmp_path):
    """One program from top to bottom, in a file, as TorchScript needs its source."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))
    code += "\nprint([(row.op, row.pack) for row in compiled.report.converted])\n"
    program = tmp_path / "page.py"
    program.write_text(code)

    done = run_python(program, check=True)

    assert "('aten.tanh.default', 'local" in done.stdout


def test_the_page_names_everything_that_there_is():
    """Every public name of the front end, and every way to unwrap an argument."""
    for name in torchscript.__all__:
        assert name in PAGE, name
    for name in (name for name in dir(Argument) if name.startswith("unwrap_to")):
        assert name in PAGE or f"..._{name.removeprefix('unwrap_to_')}" in PAGE, name


def test_torchtrt_itself_takes_scripted_models():
    """As the README writes it: no import of the front end."""
    program = (
        "import torch, torchtrt; model = torch.jit.script(torch.nn.Tanh().eval()); x = torch.rand(2); "
        "print(torch.equal(torchtrt.compile(model, [x], min_block_size=1)(x), x.tanh()))"
    )

    done = run_python("-W", "ignore", "-c", program, libraries=(), check=True)

    assert "True" == done.stdout.strip()
