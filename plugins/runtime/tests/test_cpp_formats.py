"""Saved models in the formats for C++ programs, run here by PyTorch, which calls the op in Python."""

from __future__ import annotations

import math
import shutil
import warnings

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchtrt
from torchtrt.errors import InputError, UnsupportedProgramError

ROWS = ({0: Dim("rows", min=1, max=16)},)


class Layers(nn.Module):
    """Two layers, between which an op stays in PyTorch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.between(self.first(x)))

    def between(self, x):
        return torch.cumsum(x, 1)


class Sizes(Layers):
    """Sizes that are computed, a tensor that is made, and numbers that are infinite."""

    def between(self, x):
        rows = x.shape[0]
        steps = torch.arange(rows * 2, device=x.device, dtype=torch.float32)
        x = torch.cumsum(x, 0).reshape(rows // 1, 2, 8).flip(1)
        masked = x.masked_fill(x > 1, -math.inf).clamp(min=-5.0)
        return masked.reshape(rows, -1) + torch.cumsum(steps, 0)[rows:].unsqueeze(-1)


class Counting(Layers):
    """A model that writes to a buffer and to its input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        x.mul_(2)
        return super().forward(x) + self.count


class Named(Layers):
    """A model whose inputs and outputs nest."""

    def forward(self, x, *, scale=None, double=False):
        y = super().forward(x["value"])
        y = y * 2 if double else y
        return {"sum": y.sum(1), "scaled": y if scale is None else y * scale, "columns": 4}


class Choosing(Layers):
    """A model that chooses what it computes by its data."""

    def between(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.cumsum(x, 1), lambda x: x.cos(), (x,))


def compiled_model(model, inputs, **settings):
    """Compiles a model, with the ops of these models that stay in PyTorch there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torchtrt.compile(
            model.eval(),
            inputs,
            torch_executed_ops={
                f"torch.ops.aten.{op}.default" for op in ("cumsum", "arange", "flip")
            },
            min_block_size=1,
            **settings,
        )


def scripted(compiled, path, **options):
    """Saves a model as TorchScript, and returns what PyTorch loads."""
    torchtrt.save(compiled, path, format="torchscript", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(path)


@pytest.mark.parametrize("kind", [Layers, Sizes])
def test_torchscript_has_the_ops_between_engines_for_all_sizes(tmp_path, kind):
    model = kind()
    loaded = scripted(
        compiled_model(model, [torch.rand(4, 8)], dynamic_shapes=ROWS), tmp_path / "m.ts"
    )

    for rows in (1, 4, 16):
        x = torch.rand(rows, 8)
        (output,) = loaded(x)
        torch.testing.assert_close(output, model(x).detach())


def test_torchscript_writes_to_buffers_and_inputs(tmp_path):
    model = Counting()
    loaded = scripted(compiled_model(model, [torch.rand(4, 8)]), tmp_path / "m.ts")

    for _ in range(3):
        x = torch.rand(4, 8)
        own = x.clone()
        (output,) = loaded(own)
        torch.testing.assert_close(output, model(x).detach())
        torch.testing.assert_close(own, x)


def test_inputs_and_outputs_are_flattened(tmp_path):
    """Numbers and settings among the inputs are those of the compilation."""
    model, x, scale = Named(), torch.rand(4, 8), torch.rand(4)
    compiled = compiled_model(model, [{"value": x}], kwarg_inputs={"scale": scale, "double": True})

    outputs = scripted(compiled, tmp_path / "m.ts")(x, scale)

    expected = model({"value": x}, scale=scale, double=True)
    torch.testing.assert_close(outputs[0], expected["sum"].detach())
    torch.testing.assert_close(outputs[1], expected["scaled"].detach())
    assert 4 == outputs[2]


def test_torchscript_keeps_extra_files(tmp_path):
    compiled = compiled_model(Layers(), [torch.rand(4, 8)])
    scripted(compiled, tmp_path / "m.ts", extra_files={"labels.json": "[1]"})

    texts = {"labels.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.load(tmp_path / "m.ts", _extra_files=texts)

    assert b"[1]" == texts["labels.json"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize("kind", [Counting, Choosing])
def test_aotinductor_compiles_the_ops_between_engines(tmp_path, kind):
    """Writes and choices between graphs included. A text of the user's is in the package's metadata."""
    model, path = kind(), tmp_path / "m.pt2"
    compiled = compiled_model(model, [torch.rand(4, 8)])
    torchtrt.save(compiled, path, format="aot_inductor", extra_files={"labels.json": "[1]"})

    package = torch._inductor.aoti_load_package(str(path))

    for _ in range(2):
        x = torch.rand(4, 8)
        with torch.no_grad():
            torch.testing.assert_close(package(x.clone()), model(x))
    assert "[1]" == package.get_metadata()["labels.json"]


def refusal(compiled, path, form, error=InputError):
    """Returns the text of the error of ``torchtrt.save``, after which nothing is at the path."""
    with pytest.raises(error) as raised:
        torchtrt.save(compiled, path, format=form)
    return str(raised.value)


class Conditional(nn.Module):
    """Another program for one relation of its inputs' sizes, all of it in PyTorch but for one op."""

    def forward(self, x, y):
        if x.shape[0] * 2 == y.shape[0]:
            return x.sum(0) * 100 + y.sum(0)
        return x.sum(0) + torch.cumsum(y, 0)[-1]


def test_conditions_on_sizes_are_checked_or_refused(tmp_path):
    """No call returns what another program would: there is no check of Python before it."""
    rows = [torchtrt.Input(min_shape=(2, 4), opt_shape=(3, 4), max_shape=(8, 4)) for _ in range(2)]
    model = Conditional().eval()
    with pytest.warns(torchtrt.errors.SizeWarning):
        compiled = torchtrt.compile(model, rows, min_block_size=1)
    with pytest.raises(UnsupportedProgramError, match=r"only where 2\*x.*AOTInductor checks no"):
        torchtrt.save(compiled, tmp_path / "model.pt2", format="aot_inductor")
    loaded = scripted(compiled, tmp_path / "model.ts")

    for sizes in ((2, 2), (3, 8), (8, 3)):
        inputs = [torch.rand(size, 4) for size in sizes]
        torch.testing.assert_close(loaded(*inputs)[0], model(*inputs))
    for shapes, message in (
        (((2, 4), (4, 4)), r"2\*x.shape\[0\] != y.shape\[0\]"),
        (((9, 4), (3, 4)), r"2 to 8 in x.shape\[0\]"),
        (((2, 5), (3, 4)), r"x.shape\[1\] == 4"),
        (((2, 4, 1), (3, 4)), r"x.dim\(\) == 2"),
    ):
        with pytest.raises(torch.jit.Error, match=f"compiled for {message}"):
            loaded(*map(torch.rand, shapes))


def test_formats_and_places_that_cannot_be_are_refused(tmp_path):
    compiled = compiled_model(Layers(), [torch.rand(4, 8)])

    assert "'exported_program', 'aot_inductor', 'torchscript', and not 'onnx'" in refusal(
        compiled, tmp_path / "m.onnx", "onnx"
    )
    assert "to a path, and not to" in refusal(
        compiled, (tmp_path / "m.ts").open("wb"), "torchscript"
    )
    assert f"Name {tmp_path / 'm.pt2'}." in refusal(compiled, tmp_path / "m.so", "aot_inductor")
    assert ["m.ts"] == [path.name for path in tmp_path.iterdir()]


def test_torchscript_has_no_choices_between_graphs(tmp_path):
    compiled = compiled_model(Choosing(), [torch.rand(4, 8)])

    message = refusal(compiled, tmp_path / "m.ts", "torchscript", UnsupportedProgramError)

    assert "TorchScript cannot take what PyTorch runs of this model" in message
    assert "cond runs a graph of its own" in message
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("form", ["aot_inductor", "torchscript"])
def test_engines_without_weights_are_refused(tmp_path, form):
    compiled = compiled_model(Layers(), [torch.rand(4, 8)], strip_engine_weights=True)

    message = refusal(compiled, tmp_path / "m.pt2", form, UnsupportedProgramError)

    assert (
        "was compiled with strip_engine_weights, and has no weights, which needs Python" in message
    )
