"""Regions of a model under a context manager: part of the engine around them, in the dtypes that eager has."""

import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from tests.support.shards import some
from torchtrt.errors import EngineError, InputError, UnsupportedProgramError
from torchtrt_reference import VERSIONS


def half(**options):
    """Returns autocast of the CPU to float16."""
    return torch.autocast("cpu", torch.float16, **options)


class Layers(nn.Module):
    """A model with a layer of each kind that autocast casts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.convolution = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        """Returns what the subclass computes."""
        raise NotImplementedError


class Enabled(Layers):
    """A region in half precision."""

    def forward(self, x):
        with half():
            y = self.norm(self.linear(x)).softmax(-1)
        return y + 1, y


class Disabled(Layers):
    """A region that changes nothing, as Hugging Face's rotary embeddings have."""

    def forward(self, x):
        with half(enabled=False):
            y = self.linear(x.float())
        return self.norm(y)


class Nested(Layers):
    """Float32 inside of half precision inside of no_grad, and half precision again."""

    def forward(self, x):
        with torch.no_grad(), half():
            y = self.linear(x)
            with half(enabled=False):
                z = self.linear(y.float())
            w = self.linear(z)
        return y, z, w


class Several(Layers):
    """As EfficientViT: float32 in the middle of each stage."""

    def forward(self, x):
        y = x
        for _ in range(3):
            y = self.convolution(y)
            with torch.autocast("cpu", enabled=False):
                weights = (y.float() @ y.float().mT).softmax(-1)
            with half():
                y = self.linear((weights @ y).relu())
            y = y.float()
        return y


class Branching(Layers):
    """A branch inside a region, and a region inside a branch."""

    def forward(self, x):
        def cast(x):
            with half():
                return self.linear(x)

        with half():
            y = torch.cond(x.sum() > 0, self.linear, lambda x: (x * 2).half(), (x,))
        return y, torch.cond(x.sum() > 0, cast, lambda x: (x * 2).half(), (x,))


class Composites(Layers):
    """Ops that autocast does not cast, made of others that it casts."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(3, 3, batch_first=True)

    def forward(self, x):
        with half():
            y = torch.einsum("ij,kj->ik", x, self.linear(x)), torch.inner(x, x)
            with half(enabled=False):
                z = torch.einsum("ij,kj->ik", x, x)
            return y, z, x.inner(x), self.recurrent(x[None])[0]


class Writing(Layers):
    """Writes inside a region."""

    def forward(self, x):
        with half():
            y = self.linear(x)
            y += x
            y[:1].relu_()
        return y


class Gradients(Layers):
    """Regions that mean nothing without training."""

    def forward(self, x):
        with torch.enable_grad():
            y = self.linear(x)
            with torch.no_grad():
                y = y + 1
        with torch.set_grad_enabled(True):
            return y.sin()


class OfAnotherDevice(Layers):
    """Autocast for a device that no tensor is on."""

    def forward(self, x):
        with torch.autocast("cuda", torch.float16, enabled=False):
            return self.linear(x)


MODELS = (
    Enabled,
    Disabled,
    Nested,
    Several,
    Composites,
    Branching,
    Writing,
    Gradients,
    OfAnotherDevice,
)


def assert_near(actual, expected):
    """Checks values to the precision of float16, and dtypes exactly."""
    torch.testing.assert_close(actual, expected, rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_a_region_is_part_of_the_engine(version, kind):
    """One engine, and the dtypes of eager PyTorch."""
    model, x = kind().eval(), torch.rand(4, 3)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)
        for tensor in (x, -x):
            assert_near(compiled(tensor), model(tensor))
        assert len(compiled.report.blocks) == 1


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind is not Branching])
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # of PyTorch, about recurrences
def test_a_region_of_an_exported_program_is_part_of_the_engine(kind):
    """Exported with gradients on, from a file, and left as it is. PyTorch saves no regions in branches."""
    model, x = kind().eval(), torch.rand(4, 3)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,), strict=False), file)
    file.seek(0)
    exported = torch.export.load(file)
    code = exported.graph_module.code
    compiled = torchtrt.compile(exported, require_full_compilation=True)
    assert_near(compiled(x), model(x))
    assert exported.graph_module.code == code


@pytest.mark.parametrize("is_exported", [False, True])
def test_a_region_may_have_sizes_that_vary(is_exported):
    """From 1 on; what was on before is on afterwards."""
    model = Nested().eval()
    sizes = torchtrt.Input(min_shape=(1, 3), opt_shape=(4, 3), max_shape=(8, 3))
    shapes = ({0: torch.export.Dim("n", min=1, max=8)},)
    exported = torch.export.export(model, (torch.rand(4, 3),), dynamic_shapes=shapes, strict=False)
    compiled = torchtrt.compile(
        exported if is_exported else model, [sizes], require_full_compilation=True
    )
    for size in (1, 3, 8):
        x = torch.rand(size, 3)
        assert_near(compiled(x), model(x))
    assert not torch.is_autocast_enabled("cpu")


def test_a_branch_that_pytorch_exports_in_another_dtype_is_refused():
    """In a branch, PyTorch does not record that autocast casts inside of ``inner``."""

    class Inner(Layers):
        def forward(self, x):
            with half():
                return torch.cond(x.sum() > 0, lambda x: x.inner(x), lambda x: x.inner(x + 1), (x,))

    with pytest.raises(UnsupportedProgramError, match=r"its results are \[torch\.float16\]"):
        torchtrt.compile(Inner().eval(), (torch.rand(4, 3),))


def test_a_buffer_is_written_inside_a_region():
    """Once in each call."""

    class Counting(Layers):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            with half():
                self.count.add_(1)
                return self.linear(x) + self.count

    model, other, x = Counting().eval(), Counting().eval(), torch.rand(4, 3)
    compiled = torchtrt.compile(model, (x,), min_block_size=1)
    for _ in range(2):
        assert_near(compiled(x), other(x))
    assert torch.equal(model.count, other.count)


def test_views_of_one_buffer_are_seen_inside_a_region():
    """A write through one of them would not be seen through the other."""

    class Views(Layers):
        def __init__(self):
            super().__init__()
            self.register_buffer("whole", torch.zeros(3))
            self.register_buffer("part", self.whole[:2])

        def forward(self, x):
            with half():
                self.whole.add_(1)
                return self.linear(x)[:, :2] + self.part

    with pytest.raises(UnsupportedProgramError, match="'whole', which shares memory with 'part'"):
        torchtrt.compile(Views().eval(), (torch.rand(4, 3),))


def test_weights_that_a_region_casts_are_refitted():
    """Casts of weights are computed when the model is compiled."""
    model, x = Nested().eval(), torch.rand(4, 3)
    compiled = torchtrt.compile(model, (x,), min_block_size=1, immutable_weights=False)
    with torch.no_grad():
        model.linear.weight.mul_(2)
    compiled = torchtrt.refit_module_weights(compiled, model)
    assert_near(compiled(x), model(x))


def test_the_lines_of_the_model_are_kept():
    """In the report of what stays in PyTorch."""
    compiled = torchtrt.compile(
        Enabled().eval(), (torch.rand(4, 3),), min_block_size=1, torch_executed_ops={"aten.softmax"}
    )
    assert any(
        "self.norm(self.linear(x)).softmax" in op.model_line for op in compiled.report.in_torch
    )


IN_AUTOCAST = (Enabled, Disabled, Nested, Several, Composites)


@pytest.mark.filterwarnings(
    "ignore::torchtrt.errors.SettingsWarning"
)  # one list for several models
@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        *((kind, ()) for kind in IN_AUTOCAST),
        *some(((kind, ("aten.linear", "aten.add", "aten.matmul")) for kind in IN_AUTOCAST), 2),
    ],
)
def test_a_region_inside_the_callers_autocast(kind, kept):
    """In engines and in PyTorch: a region that is off stays off."""
    model, x = kind().eval(), torch.rand(4, 3)
    with torch.no_grad(), half():
        compiled = torchtrt.compile(model, (x,), min_block_size=1, torch_executed_ops=kept)
        assert_near(compiled(x), model(x))


def test_a_program_that_was_exported_inside_autocast_is_compiled_inside_it():
    """Its casts are not in it, and PyTorch runs it in float32 elsewhere."""
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1)).eval(), torch.rand(4, 3)
    with torch.no_grad(), half():
        exported = torch.export.export(model, (x,))
        compiled = torchtrt.compile(exported, min_block_size=1)
        assert_near(compiled(x), exported.module()(x))
    with pytest.raises(EngineError, match="inside autocast"):
        compiled(x)
    with pytest.raises(UnsupportedProgramError, match="exported inside autocast: linear"):
        torchtrt.compile(exported)


def test_a_region_is_seen_by_the_passes_of_autocast():
    """The setting ``autocast`` lowers what is around a region in float32, and ``F.linear`` stays as it is inside."""

    class Mixed(Layers):
        def forward(self, x):
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                return F.linear(y.float(), self.linear.weight)

    model, x = Mixed().eval(), torch.rand(4, 3)
    compiled = torchtrt.compile(model, (x,), min_block_size=1, autocast=torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=3e-2, atol=3e-2)


def test_a_recurrent_layer_in_a_region_whose_sequence_varies_is_refused():
    """Its casts are inside its steps. PyTorch takes the steps apart, and reads their number by a TorchScript op."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = nn.GRU(3, 3, batch_first=True)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return self.recurrent(x[None])[0].float()

    model = Recurrent().eval()
    rows = torchtrt.Input(min_shape=(1, 3), opt_shape=(2, 3), max_shape=(2, 3))
    with pytest.raises(InputError, match=r"asked for 1 to 2 .* the model fixes it to 2"):
        torchtrt.compile(model, [rows], min_block_size=1)
