"""Ways to write a part of a cache, and a decoder that does."""

import copy

import torch
from torch import nn

from torchtrt_runtime import EngineModule

LENGTH = 16


class Decoder(nn.Module):
    """A step of attention over a cache, which it writes to first."""

    def __init__(self, write, dtype=torch.float32, rows=2):
        super().__init__()
        self.write = write
        self.project = nn.Linear(8, 24)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(rows, 2, LENGTH, 4, dtype=dtype))

    def forward(self, x, position):
        projected = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        query, keys, values = projected.unbind(0)
        self.write(self.keys, position, keys.to(self.keys.dtype))
        self.write(self.values, position, values.to(self.values.dtype))
        batch = x.shape[0]
        seen = torch.arange(LENGTH) <= position[:, None]
        keys, values = self.keys[:batch].to(x.dtype), self.values[:batch].to(x.dtype)
        mixed = nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
        return mixed.transpose(1, 2).flatten(2)


def decoder(write, **options):
    """Returns the same decoder twice."""
    torch.manual_seed(0)
    model = Decoder(write, **options).eval()
    return model, copy.deepcopy(model)


def step(position, rows=2):
    """Returns the inputs of a step."""
    torch.manual_seed(position)
    return torch.rand(rows, 1, 8), torch.tensor([position])


def returned(compiled):
    """Returns the shapes of what the engines return."""
    nodes = compiled.graph_module.graph.nodes
    calls = [node for node in nodes if node.op == "call_module"]
    assert all(
        isinstance(compiled.graph_module.get_submodule(str(n.target)), EngineModule) for n in calls
    )
    return [tuple(user.meta["val"].shape) for call in calls for user in call.users]


def copied(compiled):
    """Returns the shapes of what ``copy_`` writes to."""
    nodes = compiled.graph_module.graph.nodes
    target = torch.ops.aten.copy_.default
    return [tuple(n.args[0].meta["val"].shape) for n in nodes if n.target is target]


def assert_steps(eager, source, run, steps=LENGTH, **tolerance):
    """Checks results and buffers, step after step, and that the buffers stay where they are."""
    positions = [buffer.data_ptr() for buffer in source.buffers()]
    with torch.no_grad():
        for index in range(steps):
            torch.testing.assert_close(run(*step(index)), eager(*step(index)), **tolerance)
            torch.testing.assert_close(source.state_dict(), eager.state_dict(), **tolerance)
    assert positions == [buffer.data_ptr() for buffer in source.buffers()]
