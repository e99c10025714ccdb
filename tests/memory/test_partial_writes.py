"""Of a buffer or an input PyTorch writes what is new: a cache is as large as it is, a step of a model is not."""

import copy

import pytest
import torch
from torch import nn

import torchtrt
from tests.memory.caches import LENGTH, assert_steps, copied, decoder, returned, step
from tests.support.in_pytorch import left_in_pytorch
from torchtrt_reference import VERSIONS

# What stays in PyTorch, all of it if need be, keeps the same law.
pytestmark = pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")


def slots(position, keys):
    """Returns a position for each element of the keys, as ``scatter_`` takes them."""
    return position.view(1, 1, -1, 1).expand_as(keys)


def by_index_copy(cache, position, keys):
    """At positions in a tensor."""
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


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning")  # of ops that passes make
@pytest.mark.parametrize("write", [by_index_copy, two_slices], ids=lambda write: write.__name__)
def test_parts_are_written_where_pytorch_computes_too(write):
    """Between engines, and without any."""
    attention = {"torch_executed_ops": {"aten.scaled_dot_product_attention"}}
    for settings in (attention, left_in_pytorch(decoder(write)[1], *step(0))):
        eager, source = decoder(write)
        compiled = torchtrt.compile(source, step(0), min_block_size=1, **settings)
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
        for index, size in enumerate((1, 3, 2, 1)):
            x, position = step(index, 3)
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
                for index in range(4):
                    torch.testing.assert_close(loaded(*step(index)), mine(*step(index)))
    assert tuple(source.keys.shape) not in copied(torchtrt.load(path))


def test_parts_survive_a_refit():
    """New weights, the same writes."""
    eager, source = decoder(two_slices)
    compiled = torchtrt.compile(source, step(0), min_block_size=1, immutable_weights=False)
    with torch.no_grad():
        eager.project.weight.mul_(2)
    refitted = torchtrt.refit_module_weights(compiled, eager.state_dict())

    with torch.no_grad():
        for index in range(3):
            torch.testing.assert_close(refitted(*step(index)), eager(*step(index)))


@pytest.mark.parametrize("write", [by_index_copy, by_index], ids=lambda write: write.__name__)
def test_torch_compile_writes_parts_of_buffers(write):
    """Through AOTAutograd."""
    torch._dynamo.reset()
    eager, source = decoder(write)

    assert_steps(
        eager, source, torch.compile(source, backend="torchtrt", options={"min_block_size": 1})
    )


def test_torch_compile_writes_what_is_viewed_without_saying_so():
    """AOTAutograd reshapes what is not contiguous by ``_unsafe_view``, of which PyTorch has no other form."""

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
