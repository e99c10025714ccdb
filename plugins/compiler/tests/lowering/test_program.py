"""Opening exported programs: weights become attributes, writes come last."""

import torch
from torch import nn

import torchtrt
from torchtrt_compiler.lowering import open_program


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.scale = nn.Linear(3, 3)

    def forward(self, x):
        """Adds the count from before this call."""
        y = self.scale(x) + self.count
        self.count.add_(1)
        return {"y": y, "pair": (x, 2)}


def opened(model, *inputs, **options):
    """Returns the opened program of a model."""
    with torch.no_grad():
        return open_program(torch.export.export(model, inputs, strict=False, **options))


def test_weights_are_attributes_by_the_models_names():
    """The graph's placeholders are the user's inputs only."""
    program = opened(nn.Sequential(nn.Linear(3, 4)), torch.ones(2, 3))

    names = {str(node.target) for node in program.graph_module.graph.find_nodes(op="get_attr")}
    assert {"0.weight", "0.bias"} == names
    assert 1 == len(program.placeholders)


def test_a_write_to_a_buffer_happens_on_every_call():
    """The buffer is the module's own, and what is computed before the write reads the old value."""
    model = Counter().eval()
    program = opened(model, torch.ones(2, 3))

    first = program.graph_module(torch.ones(2, 3))[0]
    second = program.graph_module(torch.ones(2, 3))[0]

    assert frozenset({"count"}) == program.mutated
    torch.testing.assert_close(second, first + 1)
    assert 2 == model.count.item()


def test_a_write_to_an_input_reaches_the_caller():
    """In-place arithmetic on an input is visible outside, as in eager PyTorch."""

    class AddOne(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    program = opened(AddOne(), torch.zeros(2))
    x = torch.zeros(2)

    (result,) = program.graph_module(x)

    assert [1.0, 1.0] == x.tolist()
    assert [2.0, 2.0] == result.tolist()


def test_weights_are_not_copied():
    """The opened program holds the model's own tensors."""
    model = nn.Linear(3, 3)
    program = opened(model, torch.ones(1, 3))

    assert program.graph_module.weight is model.weight


def test_a_program_without_writes_is_not_retraced():
    """Composites such as linear stay whole: functionalising would have cost more than exporting."""
    program = opened(nn.Sequential(nn.Linear(3, 3), nn.GELU()), torch.ones(1, 3))

    targets = {
        node.target
        for node in program.graph_module.graph.find_nodes(
            op="call_function", target=torch.ops.aten.linear.default
        )
    }
    assert {torch.ops.aten.linear.default} == targets


def test_a_program_from_a_file_is_decomposed_as_before(tmp_path):
    """Its sizes are 2 or more where the graph is read, as while exporting, and may still be 1 in a call."""
    batch = torch.export.Dim("batch", min=1, max=8)
    exported = torch.export.export(
        _Spread().eval(), (torch.rand(4, 3),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(exported, tmp_path / "model.pt2")

    for program in (exported, torch.export.load(tmp_path / "model.pt2")):
        compiled = torchtrt.compile(program, min_block_size=1, require_full_compilation=True)

        for size in (1, 4, 8):
            x = torch.randn(size, 3)
            torch.testing.assert_close(compiled(x), _Spread()(x))


class _Spread(nn.Module):
    """An op without a converter, whose decomposition broadcasts a tensor with itself."""

    def forward(self, x):
        return torch.special.i0e(x) + torch.special.entr(x.abs())
