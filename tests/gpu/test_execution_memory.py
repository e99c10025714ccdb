"""Engines of the real TensorRT that compute in memory of PyTorch's allocator."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import assert_same, engines_of
from torchtrt.tensorrt import is_real

pytestmark = [
    pytest.mark.tensorrt,
    pytest.mark.skipif(not is_real(), reason="needs the real TensorRT and an NVIDIA GPU"),
]

SETTINGS = {"disable_tf32": True, "tactic_sources": 0, "max_engine_bytes": 300_000}


@pytest.fixture
def model():
    """Four layers, which become four engines."""
    torch.manual_seed(0)
    layers = ((nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()) for _ in range(4))
    return nn.Sequential(*(module for layer in layers for module in layer)).eval().cuda()


def compiled(model, **settings):
    """Returns the model compiled for 1 to 4,096 rows."""
    rows = torchtrt.Input(min_shape=(1, 256), opt_shape=(64, 256), max_shape=(4096, 256))
    return torchtrt.compile(model, [rows], **SETTINGS, **settings)


def test_engines_that_share_memory_match_eager(model):
    """At each size, from threads with streams of their own, and in a saved model."""
    shared = compiled(model, share_execution_memory=True)

    assert 4 == len(engines_of(shared))
    for count in (1, 4096, 3, 64):
        assert_same(shared, model, torch.rand(count, 256, device="cuda"))

    def call(count):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                assert_same(shared, model, torch.rand(count, 256).cuda())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(call, (1, 64, 1000, 4096)))


def test_other_work_does_not_meet_lent_memory(model):
    """PyTorch takes the memory back and uses it, while an engine may still run."""
    shared = compiled(model, share_execution_memory=True)
    x = torch.rand(4096, 256, device="cuda")
    expected = model(x)

    for _ in range(50):
        result = shared(x)
        noise = [torch.full((1 << count,), torch.nan, device="cuda") for count in range(10, 24)]
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        del noise


def test_recorded_engines_that_share_memory_match_eager(model):
    """A CUDA graph has a memory pool of its own."""
    shared = compiled(model, share_execution_memory=True, cuda_graphs=True)

    for count in (64, 64, 64, 4096, 4096, 64):
        x = torch.rand(count, 256, device="cuda")
        noise = torch.full((1 << 24,), torch.nan, device="cuda")
        assert_same(shared, model, x)
        del noise


def test_sharing_takes_less_memory(model):
    """Four contexts take memory for their largest sizes; sharing ones take none between calls."""

    def taken(**settings):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        engine = compiled(model, **settings)
        engine(torch.rand(64, 256, device="cuda"))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return before - torch.cuda.mem_get_info()[0]

    taken()  # what TensorRT loads once
    assert taken(share_execution_memory=True) <= taken()
