"""Fused attention takes over from aten_core exactly where it computes the same."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import torchtrt

OP = "aten.scaled_dot_product_attention.default"
BATCH, LENGTH = (torch.export.Dim(name, min=1, max=9) for name in ("batch", "length"))


class Attention(nn.Module):
    """Attention with fixed options."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value, *mask):
        """Returns the attention."""
        return scaled_dot_product_attention(query, key, value, *mask, **self.options)


def tensors(length=5, keys=None, heads=4):
    """Returns query, key and value."""
    torch.manual_seed(0)
    keys = keys or length
    return tuple(torch.randn(2, heads, size, 8) for size in (length, keys, keys))


def compiled_for(version, model, inputs, **options):
    """Returns the compiled model and which pack converted attention."""
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model.eval(), inputs, require_full_compilation=True, **options)
    (row,) = (row for row in compiled.report.converted if row.op == OP)
    return compiled, row.pack.split()[0]


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=["plain", "causal", "scale"]
)
def test_fused_attention_overrides_aten_core(version, options):
    """HIGH in this pack beats STANDARD in aten_core, and the result is PyTorch's."""
    model = Attention(**options)

    compiled, pack = compiled_for(version, model, tensors())

    assert "aten_experimental" == pack
    torch.testing.assert_close(compiled(*tensors()), model(*tensors()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
def test_fused_attention_takes_sizes_that_vary(version):
    """Batch and length are dynamic, a causal mask included."""
    model = Attention(is_causal=True)
    shapes = tuple({0: BATCH, 2: LENGTH} for _ in range(3))

    compiled, pack = compiled_for(version, model, tensors(), dynamic_shapes=shapes)

    assert "aten_experimental" == pack
    for length in (1, 9):
        inputs = tensors(length)
        torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("version", "options", "inputs", "reason"),
    [
        (
            "8.6.0",
            {},
            tensors(),
            "needs the layer IAttention, which TensorRT has from version 10.14 on",
        ),
        ("11.4.0", {"is_causal": True}, tensors(5, keys=7), "different lengths"),
        ("11.4.0", {}, (*tensors(), torch.rand(5, 5) > 0.5), "a mask"),
        ("11.4.0", {}, tuple(tensor[0] for tensor in tensors()), "four dimensions"),
    ],
    ids=["version", "causal lengths", "mask", "rank"],
)
def test_where_it_does_not_apply_aten_core_converts(version, options, inputs, reason):
    """It steps aside with the reason, and the result is PyTorch's all the same."""
    model = Attention(**options)

    compiled, pack = compiled_for(version, model, inputs)

    assert "aten_core" == pack
    torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        program = torch.export.export(model, inputs)
        (node,) = (node for node in program.graph.nodes if str(node.target) == OP)
        rejections = torchtrt.DYNAMO_CONVERTERS.resolve(node).rejections
    assert any(reason in rejection.reason for rejection in rejections)
