"""Of a buffer or an input PyTorch writes what is new: a cache is as large as it is, a step of a model is not."""

import copy

import pytest
import torch
from torch import nn

import torchtrt
from tests.memory.law import quiet
from torchtrt_reference import VERSIONS
from torchtrt_runtime import EngineModule

# What stays in PyTorch, all of it if need be, keeps the same law.
pytestmark = pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")

LENGTH = 16


def slots(position, keys):
    """Returns a position for each element of the keys, as ``scatter_`` takes them."""
    return position.view(1, 1, -1, 1).expand_as(keys)


def by_index_copy(cache, position, keys):
    """At positions that a tensor tells."""
    cache.index_copy_(2, position, keys)


def by_index(cache, position, keys):
    """The same, as one writes it."""
    cache[:, :, position] = keys


def by_scatter(cache, position, keys):
    """Each element has a position of its own."""
    cache.scatter_(2, slots(position, keys), keys)


def by_slot(cache, position, keys):
    """Through a view that has one dimension for all slots, as paged caches have."""
    cache.view(-1, cache.shape[-1])[position] = keys[0, 0]


def by_number(cache, position, keys):
    """In a slice that starts at a number from a tensor."""
    start = position[0].item()
    torch._check(start >= 0)
    torch._check(start < LENGTH)
    cache[:, :, start : start + 1] = keys


def of_a_batch(cache, position, keys):
    """In the rows of a batch that may be smaller than the cache's."""
    cache[: keys.shape[0]].index_copy_(2, position, keys)


def transposed(cache, position, keys):
    """In a slice of a transposed view."""
    cache.transpose(1, 2)[:1, 2:3] = keys.transpose(1, 2)[:1]


def permuted(cache, position, keys):
    """At a position of a permuted view."""
    cache.permute(2, 0, 1, 3)[position] = keys.permute(2, 0, 1, 3)


def two_slices(cache, position, keys):
    """In two places, of which the second is read before."""
    cache[:, :, 3:4] = keys
    cache[0, 1:, 4] += keys[0, 1:, 0]


def then_read(cache, position, keys):
    """In two places, each of which is read for the other."""
    cache[:, :, :1] = cache[:, :, 1:2] + keys
    cache[:, :, 1:2] = cache[:, :, :1]


WAYS = [
    by_index_copy,
    by_index,
    by_scatter,
    by_slot,
    by_number,
    of_a_batch,
    transposed,
    permuted,
    two_slices,
    then_read,
]


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


def step(place, rows=2):
    """Returns the inputs of a step."""
    torch.manual_seed(place)
    return torch.rand(rows, 1, 8), torch.tensor([place])


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
    places = [buffer.data_ptr() for buffer in source.buffers()]
    with torch.no_grad():
        for place in range(steps):
            torch.testing.assert_close(run(*step(place)), eager(*step(place)), **tolerance)
            torch.testing.assert_close(source.state_dict(), eager.state_dict(), **tolerance)
    assert places == [buffer.data_ptr() for buffer in source.buffers()]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("write", WAYS, ids=lambda write: write.__name__)
def test_no_cache_goes_out_of_an_engine(write, version):
    """Whatever the way of writing, the engines return a step's keys and values, and nothing is copied whole."""
    eager, source = decoder(write)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(source, step(0), min_block_size=1)

        whole = tuple(source.keys.shape)
        assert returned(compiled)
        assert whole not in returned(compiled)
        assert whole not in copied(compiled)
        assert_steps(eager, source, compiled)


@pytest.mark.parametrize("write", [by_index_copy, two_slices], ids=lambda write: write.__name__)
def test_parts_are_written_where_pytorch_computes_too(write):
    """Between engines, and without any."""
    for executed, size in (({"aten.scaled_dot_product_attention"}, 1), (set(), 1000)):
        eager, source = decoder(write)
        compiled = torchtrt.compile(
            source, step(0), min_block_size=size, torch_executed_ops=executed
        )
        assert tuple(source.keys.shape) not in copied(compiled)
        assert_steps(eager, source, compiled)


def test_full_compilation_needs_no_more_than_the_writes():
    """What writes in place is no op that is missing."""
    eager, source = decoder(two_slices)

    assert_steps(eager, source, torchtrt.compile(source, step(0), require_full_compilation=True))


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [
        (torch.float32, {"autocast": torch.float16}),
        (torch.float16, {}),
        (torch.float64, {"truncate_double": True}),
    ],
    ids=["autocast", "half", "double"],
)
def test_what_is_not_written_keeps_every_bit(dtype, settings):
    """A cache of another dtype than the engine computes with is not rounded where nothing is new."""
    eager, source = decoder(by_index_copy, dtype=dtype)
    for model in (eager, source):
        model.keys.fill_(1 / 3)
    compiled = torchtrt.compile(source, step(0), min_block_size=1, **settings)

    assert tuple(source.keys.shape) not in returned(compiled)
    assert_steps(eager, source, compiled, steps=3, rtol=2e-2, atol=2e-2)
    assert torch.equal(eager.keys[:, :, 3:], source.keys[:, :, 3:])


def test_a_batch_that_varies_writes_to_its_rows():
    """And leaves the others alone."""
    eager, source = decoder(of_a_batch, rows=3)
    x, position = step(0, 3)
    shapes = ({0: torch.export.Dim("batch", min=1, max=3)}, None)
    compiled = torchtrt.compile(source, (x, position), dynamic_shapes=shapes, min_block_size=1)

    assert tuple(source.keys.shape) not in copied(compiled)
    with torch.no_grad():
        for place, size in enumerate((1, 3, 2, 1)):
            x, position = step(place, 3)
            torch.testing.assert_close(compiled(x[:size], position), eager(x[:size], position))
            torch.testing.assert_close(source.state_dict(), eager.state_dict())


@pytest.mark.parametrize(
    "write", [by_index_copy, by_slot, two_slices], ids=lambda write: write.__name__
)
def test_parts_survive_saving(write, tmp_path):
    """Read by torchtrt and by PyTorch; saved again as well."""
    eager, source = decoder(write)
    torchtrt.save(torchtrt.compile(source, step(0), min_block_size=1), tmp_path / "once.pt2")
    torchtrt.save(torchtrt.load(tmp_path / "once.pt2"), tmp_path / "twice.pt2")

    for path in (tmp_path / "once.pt2", tmp_path / "twice.pt2"):
        for loaded in (torchtrt.load(path), torch.export.load(path).module()):
            mine = copy.deepcopy(eager)
            with torch.no_grad():
                for place in range(4):
                    torch.testing.assert_close(loaded(*step(place)), mine(*step(place)))
    assert tuple(source.keys.shape) not in copied(torchtrt.load(path))


def test_parts_survive_a_refit():
    """New weights, the same writes."""
    eager, source = decoder(two_slices)
    compiled = torchtrt.compile(source, step(0), min_block_size=1, immutable_weights=False)
    with torch.no_grad():
        eager.project.weight.mul_(2)
    refitted = torchtrt.refit_module_weights(compiled, eager.state_dict())

    with torch.no_grad():
        for place in range(3):
            torch.testing.assert_close(refitted(*step(place)), eager(*step(place)))


@pytest.mark.parametrize("write", [by_index_copy, by_index], ids=lambda write: write.__name__)
def test_torch_compile_writes_parts_of_buffers(write):
    """Through AOTAutograd."""
    torch._dynamo.reset()
    eager, source = decoder(write)

    assert_steps(
        eager, source, torch.compile(source, backend="torchtrt", options={"min_block_size": 1})
    )


def test_torch_compile_writes_what_is_viewed_without_saying_so():
    """AOTAutograd reshapes what is not contiguous by ``_unsafe_view``, of which PyTorch knows no other form."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("whole", torch.arange(6.0).reshape(2, 3).t())
            self.register_buffer("part", torch.zeros(4))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.part[:2].copy_(self.whole.reshape(-1)[:2])
            self.whole.add_(1)
            self.count.add_(1)
            return x * self.count

    torch._dynamo.reset()
    eager, source = Model().eval(), Model().eval()
    compiled = torch.compile(source, backend="torchtrt", options={"min_block_size": 1})

    with torch.no_grad():
        for _ in range(3):
            x = torch.rand(2)
            torch.testing.assert_close(compiled(x), eager(x))
            torch.testing.assert_close(source.state_dict(), eager.state_dict())


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


@pytest.mark.parametrize("size", [1, 100], ids=["in engines", "in PyTorch"])
def test_a_place_that_the_model_counts_is_from_before_it_counts_on(size):
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
    compiled = torchtrt.compile(source, (torch.rand(2, 1, 4),), min_block_size=size)

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

    for size in (1, 5):
        eager, source = Model().eval(), Model().eval()
        compiled = torchtrt.compile(source, (torch.rand(1, 3),), min_block_size=size)
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

    def inputs(place):
        return {
            "input_ids": torch.tensor([[place * 3 % 64]]),
            "cache_position": torch.tensor([place]),
        }

    with torch.no_grad(), quiet():  # PyTorch warns of what exporting did to transformers
        eager, source = make(), make()
        program = torch.export.export(source, (), inputs(0), strict=True)
        compiled = torchtrt.compile(program, min_block_size=1)
        places = [buffer.data_ptr() for buffer in source.buffers()]
        for place in range(LENGTH):
            torch.testing.assert_close(
                compiled(**inputs(place)), eager(**inputs(place)), rtol=1e-4, atol=1e-4
            )
            torch.testing.assert_close(
                dict(source.named_buffers()), dict(eager.named_buffers()), rtol=1e-4, atol=1e-4
            )

    whole = tuple(source.key_cache_0.shape)
    assert LENGTH in whole
    assert whole not in returned(compiled)
    assert whole not in copied(compiled)
    assert places == [buffer.data_ptr() for buffer in source.buffers()]


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
