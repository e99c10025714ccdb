"""A cache of keys and values of different shapes."""

import torch

from torchtrt_converters_transformers.cache import CacheLayout, EngineCache


def test_keys_and_values_of_every_shape_stay_where_the_memory_is_divided_anew():
    """Room doubles from 64 places to 200, and each shape moves behind the ones before it."""
    layout = CacheLayout(((2, 3), (1, 5), (2, 3), (4, 1)), max_batch_size=3, max_length=200)
    cache = EngineCache(layout, torch.zeros(layout.elements()))
    cache.start(2)
    shapes = [(2, 2, 2, 200, 3), (1, 2, 1, 200, 5), (1, 2, 4, 200, 1)]
    states = [torch.randn(shape) for shape in shapes]

    for start, end in ((0, 60), (60, 61), (61, 70), (70, 130), (130, 200)):
        cache.append([state[:, :, :, start:end] for state in states])
        expected = (states[0][0], states[1][0], states[0][1], states[2][0])
        for tensor, wanted in zip(cache.tensors, expected, strict=True):
            assert tensor.is_contiguous()
            assert torch.equal(wanted[:, :, :end], tensor[:, :, :end])
    assert 200 == cache.tensors[0].shape[2]

    cache.reorder_cache(torch.tensor([1, 1]))
    assert torch.equal(states[1][0, 1], cache.tensors[1][0])
    assert torch.equal(states[2][0, 1], cache.tensors[3][1])
