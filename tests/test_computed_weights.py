"""Modules that compute their weights when these are read. Programs hold the computation; models stay as they are."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils import spectral_norm as spectral_norm_hook
from torch.nn.utils import weight_norm as weight_norm_hook

import torchtrt

pytestmark = pytest.mark.filterwarnings("ignore")


class Steps(nn.Module):
    """A parametrization of a user's."""

    def forward(self, weight):
        """Returns multiples of an eighth."""
        return torch.round(weight * 8) / 8


COMPUTATIONS = {
    "steps": lambda module, name: parametrize.register_parametrization(module, name, Steps()),
    "weight-norm": parametrizations.weight_norm,
    "weight-norm-hook": weight_norm_hook,
    "spectral-norm": parametrizations.spectral_norm,
    "spectral-norm-hook": spectral_norm_hook,
    "orthogonal": parametrizations.orthogonal,
    "pruning": lambda module, name: prune.l1_unstructured(module, name, 0.5),
}


class Attention(nn.Module):
    """Reads the weight of ``out_proj`` without running this layer."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        """``(n, length, 8)`` to the same."""
        return self.attention(x, x, x, need_weights=False)[0]


class Recurrent(nn.Module):
    """Reads its weights from a list of them."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(8, 8, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        """``(n, length, 8)`` to ``(n, length, 16)``."""
        return self.recurrent(x)[0]


class Cell(nn.Module):
    """A step of a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x):
        """``(n, length, 8)`` to ``(n, 8)``."""
        return self.cell(x[:, 1], self.cell(x[:, 0]))


class Bag(nn.Module):
    """An embedding of positive numbers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)

    def forward(self, x):
        """``(n, length, 8)`` to ``(n, length, 8, 8)``."""
        return self.embedding(x.abs().to(torch.int64).clamp_max(8))


MODULES = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 6), nn.ReLU()), "0", ("weight",)),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(5, 6, 3)), "0", ("weight",)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose1d(5, 6, 3)), "0", ("weight",)),
    "recurrent": (Recurrent, "recurrent", ("weight_hh_l0", "weight_ih_l1_reverse")),
    "cell": (Cell, "cell", ("weight_hh",)),
    "attention": (Attention, "attention", ("in_proj_weight",)),
    "attention-output": (Attention, "attention.out_proj", ("weight",)),
    "embedding": (Bag, "embedding", ("weight",)),
}
X = 3 * torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def perturbed(model):
    """Returns a model in eval mode whose weights are no fixed point of their computation."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) / 10)
    return model.eval()


def held(model):
    """Returns the identities of all that a model's modules have."""
    return [contents(vars(module)) for module in model.modules()]


def contents(value):
    """Returns what a value consists of, as identities."""
    if isinstance(value, dict):
        return [(name, contents(part)) for name, part in value.items()]
    if isinstance(value, list | set):
        return [contents(part) for part in value]
    return id(value)


def check(model, x, is_kept=True):
    """Checks that a compiled model computes what the model does, and that the model has what it had."""
    expected = model(x).detach()
    before = held(model)

    compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert held(model) == before or not is_kept
    assert (compiled(x) - expected).norm() < 5e-6 * expected.norm()
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("computation", COMPUTATIONS)
@pytest.mark.parametrize("name", MODULES)
def test_computed_weights_are_those_of_eager_pytorch(name, computation, version):
    """Whether a parametrization computes them or a hook."""
    torch.manual_seed(0)
    make, path, weights = MODULES[name]
    model = make()
    for weight in weights:
        COMPUTATIONS[computation](model.get_submodule(path), weight)

    check(perturbed(model), X)


class Remembering(nn.Module):
    """Keeps a tensor and a number for the next call."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.last, self.calls = None, 0
        self.all, self.named, self.widths = [], {"inputs": []}, set()

    def forward(self, x):
        """``(n, 8)`` to the same."""
        self.calls += 1
        self.last = x.detach()
        self.all.append(x)
        self.named["inputs"].append(x)
        self.named["last"] = x
        self.widths.add(x.shape[1])
        self.linear.weight.data.abs()
        return self.linear(x)


def test_exporting_leaves_no_trace_in_a_model():
    """Not even where the export fails."""
    model = Remembering().eval()
    before = held(model)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        torchtrt.compile(model, [torch.ones(2, 8)], min_block_size=1)
        with pytest.raises(torchtrt.errors.ExportError):
            torchtrt.compile(model, [torch.ones(2, 7)])

    assert held(model) == before


class Counting(nn.Module):
    """Writes to a buffer through ``data``."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        """``(3,)`` to the same."""
        self.count.data.add_(x)
        self.count.data[0] = 7.0
        return self.count * 2


def test_writes_through_data_are_writes(version):
    """They go to the memory of the buffer."""
    model, other = Counting().eval(), Counting().eval()
    x = torch.tensor([1.0, 2.0, 3.0])
    compiled = torchtrt.compile(other, [x], min_block_size=1)

    for _ in range(3):
        assert torch.equal(model(x), compiled(x))


class Assigning(nn.Module):
    """Gives a weight other memory in each call."""

    def __init__(self, change):
        super().__init__()
        self.linear, self.change = nn.Linear(8, 8), change

    def forward(self, x):
        """``(n, 8)`` to the same."""
        self.linear.weight.data = self.change(self.linear.weight.data)
        return self.linear(x)


@pytest.mark.parametrize("change", [torch.abs, torch.t, torch.clone], ids=["abs", "t", "clone"])
def test_assigning_other_memory_to_data_is_refused_with_its_line(change, version):
    """torch.export loses it."""
    with pytest.raises(torchtrt.errors.ExportError, match=r"weight\.data = .*copy_\(values\)"):
        torchtrt.compile(Assigning(change).eval(), [torch.ones(2, 8)], min_block_size=1)


def test_assigning_the_same_memory_to_data_is_none(version):
    """Libraries convert weights to the dtype that they have."""
    check(Assigning(torch.Tensor.float).eval(), X[0])
