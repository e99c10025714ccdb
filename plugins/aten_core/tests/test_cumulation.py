"""Running totals by steps that every TensorRT computes as PyTorch does."""

import pytest
import torch

import torchtrt
from torchtrt.conversion import ConversionContext, is_network_tensor
from torchtrt.testing import run_compiled
from torchtrt_blocks import cumulation

from .test_pack import Function

INF = torch.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_no_infinite_constant_and_no_loop(version, monkeypatch, name, varies, dtype):
    """TensorRT 8.6 reads an infinite constant as 1e38, and has no implementation for some loops."""
    make = ConversionContext.tensor

    def finite(ctx, value, *options, **more):
        assert is_network_tensor(value) or bool(torch.as_tensor(value).isfinite().all())
        return make(ctx, value, *options, **more)

    monkeypatch.setattr(ConversionContext, "tensor", finite)
    monkeypatch.setattr(cumulation, "_one_by_one", None)

    def function(x):
        result = getattr(torch, name)(x, 1)
        return result if isinstance(result, torch.Tensor) else result.values

    input_ = torch.zeros(2, 9, dtype=dtype)
    if varies:
        input_ = torchtrt.Input(min_shape=(2, 1), opt_shape=(2, 4), max_shape=(2, 9), dtype=dtype)
    model = Function(function).eval()
    compiled = torchtrt.compile(model, [input_], require_full_compilation=True)
    x = torch.tensor([[-INF] * 4 + [1.0, -INF, INF, 2.0, 3.0], [INF, 1.0, -INF] * 3], dtype=dtype)
    torch.testing.assert_close(run_compiled(compiled, x), function(x), equal_nan=True)


@pytest.mark.parametrize("function", [torch.cumprod, torch.logcumsumexp])
def test_a_size_that_may_be_large_takes_a_loop(version, monkeypatch, function):
    """As many elements as the data has, where TensorRT returns their number."""
    if "8.6" in version:
        pytest.skip("TensorRT 8.6 returns no size that depends on data")
    monkeypatch.setattr(cumulation, "_by_doubling_up_to", None)
    monkeypatch.setattr(cumulation, "_LONGEST", 8)
    input_ = torchtrt.Input(min_shape=(1,), opt_shape=(4,), max_shape=(9,))
    model = Function(lambda x: function(x[x > 0], 0)).eval()
    compiled = torchtrt.compile(model, [input_], require_full_compilation=True)
    x = torch.tensor([0.5, -1.0, 3.0, 2.0, INF, -3.0, 1.0])
    torch.testing.assert_close(run_compiled(compiled, x), model(x))
