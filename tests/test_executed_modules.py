"""The setting ``torch_executed_modules``: modules of a model whose ops stay in PyTorch."""

import pytest
import torch
from torch import nn

import torchtrt


class Layer(nn.Module):
    """A layer of several ops, one of which is decomposed, beside a module of its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return torch.addmm(x, self.norm(self.linear(x)), x.new_ones(4, 4)) * 2


class Model(nn.Module):
    """Three layers, and ops outside of them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer(), Layer()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(torch.sin(x))
        return torch.tanh(x)


X = torch.randn(4, 4)
NAME = f"{__name__}.Layer"


def compiled(model=None, **settings):
    """Returns the model, compiled."""
    return torchtrt.compile((model or Model()).eval(), [X], min_block_size=1, **settings)


@pytest.mark.parametrize(
    ("patterns", "layers"),
    [
        (["layers.1"], {1}),
        ([r"layers\.[02]"], {0, 2}),
        (["layers.0", "layers.1"], {0, 1}),
        ([NAME.replace(".", r"\.")], {0, 1, 2}),
        ([r".*\.Layer"], {0, 1, 2}),
    ],
)
def test_all_ops_of_the_modules_stay_in_pytorch(version, patterns, layers):
    """Those of inner modules too, and none of them as parts of a decomposition; no op of others does."""
    model = Model().eval()
    made = compiled(model, torch_executed_modules=patterns)
    left = {entry.op: 0 for entry in made.report.in_torch}
    for entry in made.report.in_torch:
        left[entry.op] += 1
        assert entry.codes == ("user-excluded",)
        assert "torch_executed_modules=" in entry.reason
        assert "Take the module out" in entry.advice[0]

    counts = dict.fromkeys(("linear", "layer_norm", "addmm", "mul"), len(layers))
    assert counts == {op.split(".")[1]: count for op, count in left.items()}
    torch.testing.assert_close(made(X), model(X))


def test_a_module_that_is_called_elsewhere_too_is_excluded_by_its_path_alone():
    """Each call has the path of its module."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.GELU(), nn.GELU()

        def forward(self, x):
            return self.second(self.first(x))

    assert 1 == len(compiled(Twice(), torch_executed_modules=["first"]).report.in_torch)
    everything = compiled(Twice(), torch_executed_modules=[r"torch\.nn\.modules\.activation\.GELU"])
    assert 2 == len(everything.report.in_torch)
