"""A call of a compiled model on the reference TensorRT, against eager PyTorch.

Speed is how many times as fast as eager PyTorch, which took the milliseconds in brackets. They differ by ten from row
to row with what else the machine does: compare within a row only.

Memory is the peak of a process that loads the model, or its plan, and calls it twice, without what its imports took.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import torchtrt
from docs.demo.models import ResNet18
from docs.demo.sentences import SENTENCES, load_encoder, sizes, tokenize
from tests.benchmarks._measure import Row, run_python, seconds_in_turn
from torchtrt_reference import VERSIONS
from torchtrt_runtime.modules.engine import EngineModule

_START = """
import importlib, re, torch
import torchtrt_reference as reference

def peak():  # of this process image; resource.getrusage begins with the parent's
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1])

torch.set_num_threads({threads})
importlib.import_module({module!r})
trt = reference.load({version!r})
before = peak()
inputs = torch.load({folder!r} + "/inputs.pt")
"""
_EAGER = """
model = torch.load({folder!r} + "/model.pt", weights_only=False)
for _ in range(2):
    with torch.no_grad():
        model(*inputs)
"""
_REFERENCE = """
with open({folder!r} + "/plan", "rb") as file:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(file.read())
context = engine.create_execution_context()
names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
for name, value in zip(names, inputs):
    assert context.set_input_shape(name, tuple(value.shape))
    context.set_tensor_address(name, value.data_ptr())
assert not context.infer_shapes()
for _ in range(2):
    results = [torch.empty(tuple(context.get_tensor_shape(name))) for name in names[len(inputs) :]]
    for name, result in zip(names[len(inputs) :], results):
        context.set_tensor_address(name, result.data_ptr())
    assert context.execute_async_v3(0)
"""
_END = """
print(peak() - before)
"""


def measure() -> Iterator[Row]:
    """Yields the rows of this page of the table."""
    encoder, tokenizer = load_encoder()
    batch = torch.export.Dim("batch", min=1, max=16)
    cases: list[tuple[str, torch.nn.Module, tuple[torch.Tensor, ...], Any]] = [
        ("ResNet-18, 4 images", ResNet18().eval(), (torch.rand(4, 3, 224, 224),), ({0: batch},)),
        ("all-MiniLM-L6-v2, 6 sentences", encoder, tokenize(tokenizer, SENTENCES), sizes()),
    ]
    for version in VERSIONS:
        for title, model, inputs, dynamic_shapes in cases:
            with torchtrt.use_tensorrt(f"reference@{version}"):
                compiled = torchtrt.compile(model, inputs, dynamic_shapes=dynamic_shapes)
            with torch.no_grad():
                times = seconds_in_turn(
                    {
                        "eager": lambda: model(*inputs),  # noqa: B023 (called before the loop goes on)
                        "compiled": lambda: compiled(*inputs),  # noqa: B023
                    },
                    rounds=15,
                    warm_up=3,
                )
            speed = times["eager"] / times["compiled"]
            result = f"{speed:.2f}× eager speed ({times['eager'] * 1e3:.1f} ms)"
            yield Row(f"{title}, reference@{version}", result, "≥ 0.9×")
            if version == VERSIONS[-1]:
                ratio, eager = memory(version, model, compiled, inputs)
                result = f"{ratio:.2f}× eager memory ({eager / 1024:.0f} MiB)"
                yield Row(f"{title}, peak memory", result, "≤ 1.2×")


def memory(
    version: str, model: torch.nn.Module, compiled: Any, inputs: tuple[torch.Tensor, ...]
) -> tuple[float, float]:
    """Returns the peak memory of the reference over that of eager PyTorch, and the latter in KiB."""
    (engine,) = [module for module in compiled.modules() if isinstance(module, EngineModule)]
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model, Path(folder, "model.pt"))
        torch.save(inputs, Path(folder, "inputs.pt"))
        Path(folder, "plan").write_bytes(engine.plan)
        start = _START.format(
            threads=torch.get_num_threads(),
            module=type(model).__module__,
            version=version,
            folder=folder,
        )
        eager, ours = (
            float(run_python(start + code.format(folder=folder) + _END).split()[-1])
            for code in (_EAGER, _REFERENCE)
        )
    return ours / eager, eager
