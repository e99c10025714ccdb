"""The code and the commands of the README work as they stand there."""

import os
import re
from pathlib import Path

from tests.support.processes import run_python

README = (Path(__file__).parents[1] / "README.md").read_text()

PROGRAM = """
import torch, torchtrt

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.isposinf(x)

numbers = [1.0, -2.0, 0.0, -0.0, float("nan"), float("inf"), -float("inf")]
for version in ("8.6.0", "10.16.1", "11.4.0"):
    with torchtrt.use_tensorrt(f"reference@{version}"):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
            for x in (torch.tensor(numbers).nan_to_num(posinf=9, neginf=9).to(dtype)
                      if not dtype.is_floating_point else torch.tensor(numbers, dtype=dtype),
                      torch.ones((), dtype=dtype), torch.ones(2, 0, 3, dtype=dtype)):
                compiled = torchtrt.compile(Model().eval(), (x,), min_block_size=1)
                assert torch.equal(compiled(x), Model()(x)), (version, dtype, x)
x = torch.tensor(numbers)
compiled = torchtrt.compile(Model().eval(), (x,), require_full_compilation=True)
print([row.pack for row in compiled.report.converted])
"""


def blocks(language):
    """Returns the README's code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_pack_in_the_readme_works(tmp_path):
    """The module and the entry point, copied from the page, convert the op on every version."""
    (code,) = (block for block in blocks("python") if "Pack(" in block)
    (entry_point,) = blocks("toml")
    package = tmp_path / "torchtrt_converters_hello"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    metadata = tmp_path / "torchtrt_converters_hello-0.1.0.dist-info"
    metadata.mkdir()
    name, version = re.search(r'name = "(.+)"\nversion = "(.+)"', entry_point).groups()
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    group, line = re.search(r'\[project\.entry-points\."(.+)"\]\n(.+)\n', entry_point).groups()
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")

    done = run_python(
        *("-W", "error::torchtrt.errors.PackWarning", "-c", PROGRAM),
        libraries=(),  # the option imports torchtrt
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    assert 0 == done.returncode, done.stderr
    assert "['hello 0.1.0']" == done.stdout.strip()


def test_every_command_in_the_readme_exists():
    """The commands shown are commands of the program."""
    from torchtrt_cli import main  # noqa: F401  (the entry point of the console script)

    commands = set(re.findall(r"^torchtrt (\w+)", README, re.M))
    done = run_python("-m", "torchtrt", "--help", check=True)

    assert commands
    assert all(command in done.stdout for command in commands)
