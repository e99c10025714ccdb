"""Writes of parts keep their order: what is read before, after and between them."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.memory.caches import LENGTH, assert_steps, copied, decoder, returned, step
from tests.memory.law import quiet
from tests.support.in_pytorch import left_in_pytorch

# What stays in PyTorch, all of it if need be, keeps the same law.
pytestmark = [
    pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning"),
    # Of an op that stays in PyTorch as a whole, the ops in its decomposition are not called.
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]


def test_a_prompt_of_any_length_is_written():
    """As many positions as there are keys."""

    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, LENGTH, 4))

        def forward(self, keys, position):
            self.keys.index_copy_(1, position, keys)
            return self.keys.sum(1)

    eager, source = Cache().eval(), Cache().eval()
    length = torch.export.Dim("length", min=1, max=LENGTH)
    compiled = torchtrt.compile(
        source,
        (torch.rand(2, 3, 4), torch.arange(3)),
        dynamic_shapes=({1: length}, {0: length}),
        min_block_size=1,
    )

    assert [(2, 4)] == returned(compiled)
    assert [] == copied(compiled)
    for size in (1, 5, LENGTH):
        inputs = torch.rand(2, size, 4), torch.arange(size)
        torch.testing.assert_close(compiled(*inputs), eager(*inputs))
        assert torch.equal(eager.keys, source.keys)


@pytest.mark.parametrize("is_left", [False, True], ids=["in engines", "in PyTorch"])
def test_a_place_that_the_model_counts_is_from_before_it_counts_on(is_left):
    """The number of a view is read before the buffer that holds it is written."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("at", torch.tensor(0))
            self.register_buffer("keys", torch.zeros(2, LENGTH, 4))

        def forward(self, keys):
            start = self.at.item()
            torch._check(start >= 0)
            torch._check(start < LENGTH)
            self.at.add_(1)
            self.keys[:, start : start + 1] = keys
            return self.keys.sum(1)

    eager, source = Counting().eval(), Counting().eval()
    settings = left_in_pytorch(source, torch.rand(2, 1, 4)) if is_left else {}
    compiled = torchtrt.compile(source, (torch.rand(2, 1, 4),), min_block_size=1, **settings)

    assert (2, LENGTH, 4) not in copied(compiled)
    for _ in range(LENGTH):
        keys = torch.rand(2, 1, 4)
        torch.testing.assert_close(compiled(keys), eager(keys))
        torch.testing.assert_close(source.state_dict(), eager.state_dict(), rtol=0, atol=0)


def test_a_mask_chooses_in_the_engine():
    """What it chooses is not known before, and PyTorch would wait for the GPU to count it."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(4, 3))

        def forward(self, x, mask):
            self.state[mask] = x
            return self.state * 2

    eager, source = Masked().eval(), Masked().eval()
    mask = torch.tensor([True, False, True, False])
    compiled = torchtrt.compile(source, (torch.rand(3), mask), min_block_size=1)

    assert [(4, 3)] == copied(compiled)
    for inputs in ((torch.rand(3), mask), (torch.rand(3), ~mask)):
        torch.testing.assert_close(compiled(*inputs), eager(*inputs))
        torch.testing.assert_close(source.state, eager.state)


def test_an_input_is_written_in_part():
    """A cache that the caller gives."""

    def function(x, cache, position):
        cache.index_copy_(1, position, x)
        return cache.sum(1)

    class Model(nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    x, position = torch.rand(2, 1, 4), torch.tensor([3])
    inputs = (x, torch.zeros(2, LENGTH, 4), position)
    compiled = torchtrt.compile(Model().eval(), inputs, min_block_size=1)
    ours = torch.rand(2, LENGTH, 4)
    theirs = ours.clone()

    torch.testing.assert_close(compiled(x, ours, position), function(x, theirs, position))
    assert torch.equal(theirs, ours)
    assert [] == copied(compiled)
    with pytest.raises(torchtrt.errors.InputError, match="shares memory"):
        compiled(ours[:, :1], ours, position)


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning")  # of ops that passes make
def test_an_update_is_from_before_every_write():
    """What one write reads of what another changes."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name in "abcd":
                self.register_buffer(name, torch.arange(12.0).reshape(4, 3))
            self.register_buffer("at", torch.tensor([1]))

        def forward(self, x):
            row = self.a[2:3]
            self.a[:1] = x
            self.b[3:] = self.a[:1]
            self.c.index_copy_(0, self.at, row)
            self.a[2:3] = self.b[:1]
            self.d[:1] = self.d[1:2]
            self.d[1:2] = self.b[1:2]
            self.at.add_(1).remainder_(4)

    for settings in ({}, left_in_pytorch(Model().eval(), torch.rand(1, 3))):
        eager, source = Model().eval(), Model().eval()
        compiled = torchtrt.compile(source, (torch.rand(1, 3),), min_block_size=1, **settings)
        for _ in range(4):
            x = torch.rand(1, 3)
            compiled(x.clone())
            eager(x.clone())
            torch.testing.assert_close(source.state_dict(), eager.state_dict(), rtol=0, atol=0)


def test_what_is_read_only_by_a_write_is_read_before_the_others():
    """A buffer that another write changes, and nothing else names."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name in "abc":
                self.register_buffer(name, torch.ones(3))

        def forward(self, x):
            self.a.add_(1)
            self.c.copy_(self.b)
            self.b.copy_(x)
            return x + 1

    eager, source = Model().eval(), Model().eval()
    compiled = torchtrt.compile(source, (torch.rand(3),), min_block_size=1)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.zeros(3)), eager(torch.zeros(3)))
        torch.testing.assert_close(source.state_dict(), eager.state_dict())


def test_what_is_new_as_a_whole_is_written_as_a_whole():
    """Sums over the buffer, and parts that come to no less than it."""

    def whole(cache, position, keys):
        cache.mul_(0.5)
        cache.index_copy_(2, position, keys)

    eager, source = decoder(whole)
    compiled = torchtrt.compile(source, step(0), min_block_size=1)

    assert [tuple(source.keys.shape)] * 2 == copied(compiled)
    assert_steps(eager, source, compiled, steps=3)


def test_transformers_static_cache_is_written_in_part():
    """Two layers of a Llama over the cache that transformers exports."""
    transformers = pytest.importorskip("transformers")
    executorch = pytest.importorskip("transformers.integrations.executorch")

    def make():
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=64,
            max_position_embeddings=64,
        )
        model = transformers.LlamaForCausalLM(config).eval()
        cache = {"batch_size": 1, "max_cache_len": LENGTH, "device": "cpu"}
        model.generation_config = transformers.GenerationConfig(
            use_cache=True, cache_implementation="static", max_length=LENGTH, cache_config=cache
        )
        return executorch.TorchExportableModuleWithStaticCache(model).eval()

    def inputs(position):
        return {
            "input_ids": torch.tensor([[position * 3 % 64]]),
            "cache_position": torch.tensor([position]),
        }

    with torch.no_grad(), quiet():  # PyTorch warns of what exporting did to transformers
        eager, source = make(), make()
        program = torch.export.export(source, (), inputs(0), strict=True)
        compiled = torchtrt.compile(program, min_block_size=1)
        positions = [buffer.data_ptr() for buffer in source.buffers()]
        for index in range(LENGTH):
            torch.testing.assert_close(
                compiled(**inputs(index)), eager(**inputs(index)), rtol=1e-4, atol=1e-4
            )
            torch.testing.assert_close(
                dict(source.named_buffers()), dict(eager.named_buffers()), rtol=1e-4, atol=1e-4
            )

    whole = tuple(source.key_cache_0.shape)
    assert LENGTH in whole
    assert whole not in returned(compiled)
    assert whole not in copied(compiled)
    assert positions == [buffer.data_ptr() for buffer in source.buffers()]


@pytest.mark.parametrize(
    "view",
    [
        lambda cache: cache.flatten().view(-1),
        lambda cache: cache.view(-1).view(4, -1).view(-1),
        lambda cache: cache.t().t().view(-1),
        lambda cache: cache.view(6, 2).view(-1),
        lambda cache: cache.unsqueeze(0).squeeze(0).view(-1),
    ],
)
def test_a_view_of_a_view_is_not_taken_for_the_first(view):
    """Although both have the same sizes."""

    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.arange(12.0).reshape(3, 4).contiguous())

        def forward(self, x):
            view(self.cache)[1::3] = 9
            return x * 2

    model, eager = Cache().eval(), Cache().eval()
    compiled = torchtrt.compile(model, (torch.ones(2),), min_block_size=1)
    compiled(torch.ones(2))
    eager(torch.ones(2))

    assert torch.equal(eager.cache, model.cache)
