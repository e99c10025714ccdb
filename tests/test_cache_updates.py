"""A converter that writes into a cache while the engine runs gets the values of its op, or a refusal.

``IKVCacheUpdateLayer`` makes an output of the memory of an input. A call must neither change the caller's tensor nor
return memory that the next call changes.
"""

import threading

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import BuildError
from torchtrt.packs import use_packs
from torchtrt.tensorrt import Capability, trt

library = torch.library.Library("torchtrt_cache_updates", "DEF")
library.define("write(Tensor cache, Tensor rows, Tensor starts) -> Tensor")
OP = "torchtrt_cache_updates::write"


def written(cache, rows, starts):
    """Returns a cache with rows written at each sequence's position."""
    result = cache.clone()
    for index, start in enumerate(starts.tolist()):
        result[index, :, start : start + rows.shape[2]] = rows[index]
    return result


library.impl("write", written, "CompositeExplicitAutograd")
torch.library.register_fake(OP, lambda cache, rows, starts: torch.empty_like(cache))
write = torch.ops.torchtrt_cache_updates.write


@pytest.fixture(autouse=True)
def converter():
    """The converter of a third party: one layer, used as TensorRT documents it."""
    register = torchtrt.dynamo_tensorrt_converter(
        write.default, supports_dynamic_shapes=True, requires=Capability.KV_CACHE_UPDATE
    )

    def convert(ctx, cache, rows, starts):
        layer = ctx.net.add_kv_cache_update(cache, rows, starts, trt.KVCacheMode.LINEAR)
        return layer.get_output(0)

    with use_packs():
        register(convert)
        yield


class Model(nn.Module):
    """A model around one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, cache, rows, starts):
        """Calls the function."""
        return self.function(cache, rows, starts)


def inputs(seed=0, dtype=torch.float32):
    """Returns a cache of eight places, two new rows for each of two sequences, and where they go."""
    torch.manual_seed(seed)
    cache, rows = torch.rand(2, 3, 8, 4, dtype=dtype), torch.rand(2, 3, 2, 4, dtype=dtype)
    return cache, rows, torch.tensor([1, 6 - seed % 4], dtype=torch.int32)


def compiled_for(function, tensorrt="reference@11.4.0", **settings):
    """Returns the model and the compiled model."""
    model = Model(function).eval()
    settings = {"min_block_size": 1, **settings}
    with torchtrt.use_tensorrt(tensorrt):
        return model, torchtrt.compile(model, inputs(), **settings)


FUNCTIONS = {
    "alone": lambda cache, rows, starts: write(cache, rows, starts),
    "read afterwards": lambda cache, rows, starts: (
        (new := write(cache, rows, starts)),
        new.relu() * 2,
    ),
    "not returned": lambda cache, rows, starts: write(cache, rows, starts).relu() * 2,
    "of an intermediate": lambda cache, rows, starts: write(cache.relu() * 2, rows, starts),
    "read before": lambda cache, rows, starts: (write(cache, rows, starts), cache.relu() * 2),
    "twice": lambda cache, rows, starts: write(write(cache, rows, starts), rows * 2, starts - 1),
    "two of one": lambda cache, rows, starts: (
        write(cache, rows, starts),
        write(cache, rows * 2, starts),
    ),
    "returned beside": lambda cache, rows, starts: (write(cache, rows, starts), cache),
    "of a view": lambda cache, rows, starts: write(
        cache.transpose(0, 1).transpose(0, 1), rows, starts
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_the_op(name):
    """For several calls, whose results stay as they are, and inputs too."""
    model, compiled = compiled_for(FUNCTIONS[name])
    results = []
    for seed in range(3):
        operands = inputs(seed)
        before = [tensor.clone() for tensor in operands]
        results.append((compiled(*operands), model(*before)))
        torch.testing.assert_close(operands, tuple(before))

    for actual, expected in results:
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """The same."""
    operands = inputs(dtype=dtype)
    model = Model(FUNCTIONS["read afterwards"]).eval()
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, operands, require_full_compilation=True)

    torch.testing.assert_close(compiled(*operands), model(*operands))


def test_where_the_cache_is_read_too_engines_are_separate():
    """Nothing defines when the other layer reads."""
    _, compiled = compiled_for(FUNCTIONS["read before"])

    assert 2 == len(compiled.report.blocks)
    assert "reads the same cache" in compiled.report.splits[0]


@pytest.mark.parametrize("tensorrt", ["reference@11.4.0", "rtx"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("of an intermediate", "The cache tensor must be a network input"),
        ("not returned", "The output tensor must be a network output"),
    ],
)
def test_tensorrt_refuses_caches_inside_of_an_engine(tensorrt, name, reason):
    """The reference in the words of TensorRT for RTX; the engine becomes several."""
    if tensorrt == "rtx":
        pytest.importorskip("tensorrt_rtx_bindings")
    _, compiled = compiled_for(FUNCTIONS[name], tensorrt)

    assert len(compiled.report.blocks) > 1
    assert reason in compiled.report.splits[0]


def test_a_constant_cache_is_an_error():
    """A single op that must not stay in PyTorch."""
    constant = torch.rand(2, 3, 8, 4)
    with pytest.raises(BuildError, match="must be a network input"):
        compiled_for(
            lambda cache, rows, starts: write(constant, rows, starts) + cache,
            require_full_compilation=True,
        )


def test_threads_have_their_own_memory():
    """Contexts run side by side."""
    model, compiled = compiled_for(FUNCTIONS["read afterwards"])
    wrong = []

    def run(seed):
        for _ in range(20):
            operands = inputs(seed)
            if not torch.equal(compiled(*operands)[0], model(*operands)[0]):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


def test_a_saved_model_shares_nothing(tmp_path):
    """The engine has the input that an output aliases."""
    model, compiled = compiled_for(FUNCTIONS["alone"])
    with torchtrt.use_tensorrt("reference@11.4.0"):
        torchtrt.save(compiled, tmp_path / "model.ttrt")
        loaded = torchtrt.load(tmp_path / "model.ttrt")
        operands = inputs()
        before = operands[0].clone()
        first, second = loaded(*operands), loaded(*inputs(1))

    torch.testing.assert_close(first, model(*inputs()))
    torch.testing.assert_close(second, model(*inputs(1)))
    assert torch.equal(before, operands[0])
