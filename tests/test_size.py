"""How much memory compiling takes, on the reference TensorRT."""

import sys

import pytest

from tests.support.processes import run_python
from torchtrt_reference import VERSIONS

MEASURE = """
import sys
import torch, torchtrt
from pathlib import Path

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.ModuleList([torch.nn.Linear(1024, 1024) for _ in range(12)])
        self.transposed = torch.nn.ParameterList([torch.rand(1024, 1024) for _ in range(12)])
        self.tied = torch.nn.Linear(1024, 1024)
        self.tied.weight = self.linear[0].weight

    def forward(self, x):
        for linear, weight in zip(self.linear, self.transposed):
            x = torch.relu(linear(x)) @ weight
        return self.tied(x)

def kilobytes(what):
    status = Path("/proc/self/status").read_text()
    return int(status.partition(what + ":")[2].split()[0])

def compiled(model, x):
    with torchtrt.use_tensorrt("reference@" + sys.argv[1]), torch.no_grad():
        made = torchtrt.compile(torch.export.export(model, (x,)), require_full_compilation=True)
        made(x)
    return made

model, x = Model().eval(), torch.rand(2, 1024)
kept = compiled(torch.nn.Linear(1024, 1024).eval(), x)  # what is loaded on first use
before = kilobytes("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
kept = compiled(model, x)
weights = sum(weight.nbytes for weight in model.parameters()) / 1024
print((kilobytes("VmHWM") - before) / weights, (kilobytes("VmRSS") - before) / weights)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's record of a process")
@pytest.mark.parametrize("version", VERSIONS)
def test_compiling_copies_weights_once(version):
    """The plan holds every weight once, tied and transposed ones too, and is itself never copied."""
    done = run_python("-c", MEASURE, version, check=True)
    peak, kept = map(float, done.stdout.split())

    assert 0.9 < kept < 1.2
    assert peak < 1.3
