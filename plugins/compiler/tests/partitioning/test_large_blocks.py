"""``max_engine_bytes`` splits blocks by the bytes of their weights."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import SettingsError, SettingsWarning
from torchtrt_compiler.torch_internals import GraphModuleOfLateCode

WIDTH = 64
LAYER = 4 * (WIDTH * WIDTH + WIDTH)  # bytes of one linear layer


class Residual(nn.Module):
    """Linear layers with a sum around each two."""

    def __init__(self, layers=8, tied=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        if tied:
            self.layers[-1].weight = self.layers[0].weight

    def forward(self, x):
        for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = x + second(torch.relu(first(x)))
        return x


def compiled_and_blocks(model, x, **settings):
    """Returns a compiled model, checked against eager, and the nodes of each of its engines."""
    compiled = torchtrt.compile(model.eval(), [x], min_block_size=1, **settings)
    torch.testing.assert_close(compiled(x), model(x))
    return compiled, [block.nodes for block in compiled.report.blocks]


@pytest.mark.parametrize("layers", [1, 2, 3, 8])
def test_no_engine_has_more_weights(layers):
    """As many layers fit as the limit allows."""
    x = torch.rand(3, WIDTH)

    compiled, blocks = compiled_and_blocks(Residual(), x, max_engine_bytes=layers * LAYER)

    assert len(blocks) >= -(-8 // layers)
    assert len(blocks) <= 8
    assert all(block.plan_bytes < layers * LAYER + 20_000 for block in compiled.report.blocks)


def test_without_a_limit_there_is_one_engine():
    """A limit that all weights fit into changes nothing either."""
    x = torch.rand(3, WIDTH)

    for limit in (None, 8 * LAYER, 2**40):
        _, blocks = compiled_and_blocks(Residual(), x, max_engine_bytes=limit)
        assert len(blocks) == 1


def test_an_op_with_more_weights_than_the_limit_is_an_engine_of_its_own():
    """Nothing can split it. A warning names the weights."""
    x = torch.rand(3, WIDTH)

    with pytest.warns(
        SettingsWarning,
        match=r"8 such ops; the largest has 16,640 bytes of weights: layers.0.weight and layers",
    ):
        _, blocks = compiled_and_blocks(Residual(), x, max_engine_bytes=100)

    assert len(blocks) >= 8


def test_a_cut_takes_few_tensors_across():
    """Between two sums there is one tensor; inside of one there are two."""
    x = torch.rand(3, WIDTH)

    compiled, _ = compiled_and_blocks(Residual(16), x, max_engine_bytes=8 * LAYER + 100)

    graph = compiled.graph_module.graph
    calls = [node for node in graph.nodes if node.op == "call_module"]
    assert len(calls) == 2
    assert all(len(call.args) == 1 for call in calls)


def test_tied_weights_count_once_in_a_block():
    """They are one constant of an engine."""
    x = torch.rand(3, WIDTH)

    _, blocks = compiled_and_blocks(
        Residual(2, tied=True), x, max_engine_bytes=LAYER + WIDTH * 4 + 100
    )

    assert len(blocks) == 1


def test_limited_engines_are_saved_and_refitted(tmp_path):
    """They are engines like any others."""
    x = torch.rand(3, WIDTH)
    model, other = Residual(4).eval(), Residual(4).eval()
    compiled, blocks = compiled_and_blocks(
        model, x, max_engine_bytes=LAYER, immutable_weights=False
    )
    torchtrt.save(compiled, tmp_path / "model.pt2")

    loaded = torchtrt.load(tmp_path / "model.pt2")
    torch.testing.assert_close(loaded(x), model(x))
    refitted = torchtrt.refit_module_weights(loaded, other)

    assert len(blocks) == 4
    torch.testing.assert_close(refitted(x), other(x))


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1GB"])
def test_a_limit_is_a_number_of_bytes(value):
    """Zero is no limit that anything fits into."""
    with pytest.raises(SettingsError, match="max_engine_bytes"):
        torchtrt.compile(nn.ReLU(), [torch.rand(1)], max_engine_bytes=value)


def test_hooks_of_a_block_run_once_in_its_first_call():
    """A block writes its code in the first call, and PyTorch's class of this purpose then calls it again."""
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.relu, (graph.placeholder("x"),)))
    block, calls = GraphModuleOfLateCode(nn.Module(), graph), []
    block.register_forward_hook(lambda *_: calls.append(1))

    x = torch.randn(3)
    for count in (1, 2):
        torch.testing.assert_close(block(x), x.relu())
        assert len(calls) == count
