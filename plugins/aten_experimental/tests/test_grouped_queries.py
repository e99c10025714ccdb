"""Heads of keys that several queries share are not repeated where TensorRT has attention."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import torchtrt

PASS = "grouped_queries of aten_experimental"


class Grouped(nn.Module):
    """Attention with fewer heads of keys than of queries, repeated in one of several ways."""

    def __init__(self, repeat):
        super().__init__()
        self.repeat = repeat

    def forward(self, query, key, value, *mask):
        """Returns the attention."""
        times = query.shape[1] // key.shape[1]
        return scaled_dot_product_attention(
            query, self.repeat(key, times), self.repeat(value, times), *mask
        )


def expanded(tensor, times):
    """Repeats heads as transformers does."""
    batch, heads, length, width = tensor.shape
    wide = tensor[:, :, None, :, :].expand(batch, heads, times, length, width)
    return wide.reshape(batch, heads * times, length, width)


REPEATED = {
    "expand": expanded,
    "repeat_interleave": lambda tensor, times: tensor.repeat_interleave(times, dim=1),
    "repeat_interleave-negative": lambda tensor, times: tensor.repeat_interleave(times, dim=-3),
}
OTHERS = {
    "tiled": lambda tensor, times: tensor.repeat(1, times, 1, 1),
    "turned": lambda tensor, times: expanded(tensor.transpose(2, 3), times).reshape(
        tensor.shape[0], -1, *tensor.shape[2:]
    ),
    "doubled": lambda tensor, times: expanded(tensor, times) * 2,
}


def inputs(batch=2, length=5):
    """Returns a query of six heads and keys and values of two."""
    torch.manual_seed(0)
    return tuple(torch.randn(batch, heads, length, 8) for heads in (6, 2, 2))


def compiled_on(version, model, arguments, **options):
    """Returns the compiled model, all of it in engines."""
    with torchtrt.use_tensorrt(f"reference@{version}"):
        return torchtrt.compile(model.eval(), arguments, require_full_compilation=True, **options)


@pytest.mark.parametrize("version", ["8.6.0", "10.16.1", "11.4.0"])
@pytest.mark.parametrize("repeat", REPEATED.values(), ids=REPEATED)
def test_repeated_heads_are_read_where_they_are(version, repeat):
    """For sizes that vary, with and without a mask; TensorRT 8.6 has no attention and repeats them."""
    batch, length = (torch.export.Dim(name, min=1, max=9) for name in ("batch", "length"))
    tensor, mask = {0: batch, 2: length}, torch.rand(2, 1, 5, 5) > 0.3
    shapes = (tensor, tensor, tensor, ({0: batch, 2: length, 3: length},))
    model = Grouped(repeat)

    compiled = compiled_on(version, model, (*inputs(), mask), dynamic_shapes=shapes)

    assert (version != "8.6.0") == any(PASS in pass_ for pass_ in compiled.report.passes)
    for sizes in ((1, 1), (9, 9), (2, 5)):
        operands = (*inputs(*sizes), torch.rand(sizes[0], 1, sizes[1], sizes[1]) > 0.3)
        torch.testing.assert_close(compiled(*operands), model(*operands), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("repeat", OTHERS.values(), ids=OTHERS)
def test_what_is_no_repetition_stays(repeat):
    """Tiled heads go around, and scaled ones are other numbers."""
    model = Grouped(repeat)

    compiled = compiled_on("11.4.0", model, inputs())

    assert not any(PASS in pass_ for pass_ in compiled.report.passes)
    torch.testing.assert_close(compiled(*inputs()), model(*inputs()), rtol=1e-5, atol=1e-5)


def test_keys_and_values_with_other_groups_stay():
    """TensorRT's attention has as many heads of values as of keys."""

    class Unequal(nn.Module):
        def forward(self, query, key, value):
            return scaled_dot_product_attention(query, expanded(key, 3), expanded(value, 2))

    query, key, value = inputs()
    operands = query, key, torch.cat([value, value[:, :1]], 1)

    compiled = compiled_on("11.4.0", Unequal(), operands)

    torch.testing.assert_close(compiled(*operands), Unequal()(*operands), rtol=1e-5, atol=1e-5)
