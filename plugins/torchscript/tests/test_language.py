"""What TorchScript programs are written with: classes, interfaces, strings, optional and named values."""

import copy
import io
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import torchtrt
import torchtrt_torchscript as torchscript
from torchtrt.errors import ExportError, InputError

from .helpers import assert_compiles, assert_same, quiet, script

X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -3.0]])
BATCH = {0: torch.export.Dim("batch", min=2, max=6)}


def compiled_whole(model, *inputs, **options):
    """Compiles a model with nothing left in PyTorch."""
    return torchscript.compile(model, inputs, require_full_compilation=True, **options)


class Scaling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


Step = quiet(torch.jit.interface, Step)


class Pipeline(nn.Module):
    """Calls its step by an interface, and has lists and dictionaries of modules and a method."""

    step: Step

    def __init__(self):
        super().__init__()
        self.step = Scaling()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})

    def twice(self, x: Tensor) -> Tensor:
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x) + index
        for module in self.named.values():
            x = module(x)
        return self.twice(self.step(x))


def test_modules_interfaces_and_methods_are_called(version):
    """Also for batches of every size."""
    model = script(Pipeline().eval())

    compiled = compiled_whole(model, X, dynamic_shapes=(BATCH,))

    assert_same(compiled, model, X)
    assert_same(compiled, model, torch.randn(5, 3))


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Optionals(nn.Module):
    def forward(
        self, pair: Pair, mask: Tensor | None, factor: float, rounds: int, negate: bool, mode: str
    ) -> Pair:
        assert mode in ("a", "b"), "a mode is a or b"
        x = pair.first + pair.second if mode == "a" else pair.first
        if mask is not None:
            x = x * mask
        for index in range(rounds):
            x = x * factor + index
        return Pair(-x if negate else x, x)


def test_inputs_are_named_optional_or_numbers(version):
    """Numbers, strings and None are fixed when the model is compiled; a named tuple comes out as a tuple."""
    model = script(Optionals())
    for inputs in (
        (Pair(X, X), None, 0.5, 3, True, "a"),
        (Pair(X, X), X, 2.0, 0, False, "b"),
    ):
        compiled = compiled_whole(model, *inputs)

        torch.testing.assert_close(compiled(*inputs), tuple(model(*inputs)))


class Counter:
    """An object that lives while the model runs."""

    def __init__(self, start: int):
        self.count = start

    def add(self, x: Tensor) -> Tensor:
        """Adds more from call to call."""
        self.count += 1
        return x + self.count


def test_objects_strings_and_collections_are_gone_when_the_model_is_compiled(version):
    """What TorchScript's interpreter computes without tensors, it computes here too."""

    def compute(x: Tensor) -> tuple[Tensor, Tensor]:
        counter = Counter(3)
        with torch.no_grad():
            x = counter.add(counter.add(x))
        scale = 0
        for part in "some_words_of".split("_"):  # noqa: SIM905
            if part.isalpha() and part.startswith("w"):
                scale += len(part.upper())
        least, _, most = sorted([3, 1, 2])
        named = {name: x * factor for name, factor in [("a", least), ("b", most)]}
        del named["a"]
        flags = [value > 1 for value in (least, most)]
        return named["b"] * scale + sum([1, 2]), x * float(any(flags) and not all(flags))

    assert_compiles(compute, (X,))


def test_tensors_are_changed_in_place(version):
    """Through views, and a converter for what comes after still gets its node."""

    def change(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        x[:, 0] = y
        x += 1
        x.masked_fill_(x > 0.5, 0.25)
        x[0].mul_(2.0)
        return torch.relu(x)

    assert_compiles(change, (X, torch.randn(2)))


def test_arithmetic_on_sizes_stays_symbolic(version):
    """Roots, halves and roundings of a size that varies."""

    def sizes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count = x.size(0)
        half = int(count * 0.5) + math.floor(count / 3)
        return x * math.sqrt(count), x + half, torch.full((count // 2 * 2, 2), float(count))

    assert_compiles(sizes, (torch.randn(4, 3),), (torch.randn(5, 3),), dynamic_shapes=(BATCH,))


def test_a_trace_computes_with_sizes_as_tensors(version):
    """They become sizes again, so that a trace takes other sizes than it was made with."""

    def split(x):
        count, width = x.shape
        parts = x.reshape(count * (width // 3), 3) + torch.div(width, 2, rounding_mode="trunc")
        return parts.view(-1, count, 3).expand(2, -1, count, 3)

    traced = quiet(torch.jit.trace, split, torch.randn(4, 6))

    compiled = compiled_whole(traced, torch.randn(4, 6), dynamic_shapes=(BATCH,))

    for batch in (2, 4, 6):
        assert_same(compiled, split, torch.randn(batch, 6))


SIZES = {
    "subtraction from a number": lambda n: 13 - n,
    "distance": lambda n: abs(n - 9),
    "power": lambda n: n**2,
    "shifts": lambda n: (n << 1) + (n >> 1),
    "limit": lambda n: torch.maximum(n, n - n + 3) if isinstance(n, Tensor) else max(n, 3),
    "multiple of four": lambda n: n + (4 - n % 4) % 4,
}


@pytest.mark.parametrize("name", SIZES)
def test_a_trace_keeps_every_arithmetic_on_sizes(name, version):
    """Ops behind it know that the result is a size, such as a roll, which asks whether it is 0."""

    def repeated(x):
        return x.repeat(SIZES[name](x.shape[0]), 1).roll(1, 0)

    traced = quiet(torch.jit.trace, repeated, torch.randn(4, 3))
    rows = torchtrt.Input(min_shape=(2, 3), opt_shape=(4, 3), max_shape=(6, 3))
    compiled = compiled_whole(traced, rows)
    for batch in (2, 4, 6):
        assert_same(compiled, repeated, torch.randn(batch, 3))


def test_a_size_that_a_trace_computes_with_tensors_is_the_reason():
    """The op itself takes known numbers."""

    def repeated(x):
        return x.repeat(1 + (x.shape[0] & 3), 1).roll(1, 0)

    traced = quiet(torch.jit.trace, repeated, torch.randn(4, 3))
    with pytest.raises(ExportError, match="aten::roll asks for a size that is known"):
        torchscript.compile(traced, (torch.randn(4, 3),), dynamic_shapes=(BATCH,))


def test_a_buffer_keeps_what_is_written_to_it(version):
    """From call to call, as in PyTorch."""

    class Averaging(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.total = self.total + x.sum(0)
            return self.total / self.count

    model = Averaging()
    compiled = torchscript.compile(script(copy.deepcopy(model)), (X,), min_block_size=1)

    for scale in (1.0, 2.0, -3.0):
        torch.testing.assert_close(compiled(X * scale), model(X * scale))


def test_a_transformer_is_converted_op_by_op(version):
    """Not as one of the fused kernels that PyTorch takes for inference and that it alone has."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 8)

    assert_same(compiled_whole(script(model), x), model, x)


def test_a_frozen_module_keeps_the_names_of_its_weights():
    """They are constants of its graph; the engine's weights have the names they had."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(), nn.ReLU()).eval()
    x = torch.randn(1, 3, 6, 6)
    frozen = quiet(torch.jit.freeze, script(model))

    program = torchscript.export(frozen, (x,))

    assert {"0.weight", "0.bias"} == set(program.state_dict)
    assert_same(torchtrt.compile(program, require_full_compilation=True), model, x)


def test_a_module_in_half_precision_is_compiled(version):
    """Its results are of half precision."""
    model = script(nn.Linear(3, 4).half().eval())
    compiled = compiled_whole(model, X.half())

    torch.testing.assert_close(compiled(X.half()), model(X.half()), rtol=1e-2, atol=1e-2)


def test_a_module_that_was_optimized_for_pytorch_is_an_error():
    """The ops of torch.jit.optimize_for_inference are PyTorch's alone."""
    model = script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval())
    optimized = quiet(torch.jit.optimize_for_inference, model)
    if "mkldnn" not in str(optimized.graph):
        pytest.skip("this PyTorch has no MKL-DNN")

    with pytest.raises(InputError, match="Compile the model as it was before"):
        torchscript.compile(optimized, (torch.randn(1, 3, 5, 5),))


def test_an_object_among_the_attributes_is_an_error():
    """As quantized modules keep their weights."""

    def quantized():
        modules = {nn.Linear}
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 3)), modules)

    if torch.backends.quantized.engine == "none":
        pytest.skip("this PyTorch has no quantized modules")
    with pytest.raises(InputError, match="the model that was not quantized"):
        torchscript.compile(script(quiet(quantized)), (X,))


def test_a_file_is_a_path_or_open(tmp_path):
    """What is no TorchScript file is an error that names it."""
    buffer, other = io.BytesIO(), tmp_path / "other.pt"
    quiet(torch.jit.save, script(Scaling()), buffer)
    buffer.seek(0)
    other.write_text("nothing")

    torch.testing.assert_close(compiled_whole(buffer, X)(X), X * 3)
    for path in (other, tmp_path / "missing.pt"):
        with pytest.raises(InputError, match=f"{path.name} is not the file of a TorchScript model"):
            torchscript.compile(path, (X,))


def test_a_module_without_forward_says_which_methods_it_has():
    """A scripted LSTM has one for each kind of input."""
    original = nn.LSTM(3, 4).eval()
    model = script(original)

    with pytest.raises(InputError, match="It has: forward__0, forward__1"):
        torchscript.compile(model, (torch.randn(5, 2, 3),))
    compiled = torchscript.compile(
        model, (torch.randn(5, 2, 3),), method="forward__0", require_full_compilation=True
    )

    assert_same(compiled, original, torch.randn(5, 2, 3))
