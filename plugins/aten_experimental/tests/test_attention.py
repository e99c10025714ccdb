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


SEEN = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) > 0.5
SEEN[1, 0, 2] = False
"""Which of five queries sees which of seven keys; one sees none."""
MASKS = {
    "bool": SEEN,
    "float": torch.where(SEEN, 0.5, -torch.inf),
    "lowest": torch.where(SEEN, 0.5, torch.finfo(torch.float32).min)[:1],
    "keys": SEEN[:, :, :1],
    "heads": SEEN.expand(2, 4, 5, 7).clone(),
    "matrix": SEEN[0, 0],
    "vector": SEEN[0, 0, 0],
    "number": torch.tensor(True),
}


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize("constant", [False, True], ids=["input", "constant"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks_of_every_kind(version, mask, constant, causal):
    """Masks broadcast as in PyTorch, and a query that sees no key has a result of 0."""
    query, key, value = tensors(5, keys=7)
    seen = (
        torch.ones(5, 7, dtype=torch.bool).tril() if causal else torch.ones(5, 7, dtype=torch.bool)
    )
    whole = seen & mask if mask.dtype is torch.bool else mask.masked_fill(~seen, -torch.inf)
    model = Fixed(mask, causal) if constant else Masked(causal)
    inputs = (query, key, value) if constant else (query, key, value, mask)

    compiled, pack = compiled_for(version, model, inputs)

    assert "aten_experimental" == pack
    expected = scaled_dot_product_attention(query, key, value, whole)
    torch.testing.assert_close(compiled(*inputs), expected, rtol=1e-5, atol=1e-5)


class Masked(nn.Module):
    """Attention with a mask, and a triangle where it is causal."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal

    def forward(self, query, key, value, mask):
        """Returns the attention."""
        if self.causal:
            seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
            mask = seen & mask if mask.dtype is torch.bool else mask.masked_fill(~seen, -torch.inf)
        return scaled_dot_product_attention(query, key, value, mask)


class Fixed(Masked):
    """The same with a mask that is a constant."""

    def __init__(self, mask, causal):
        super().__init__(causal)
        self.register_buffer("mask", mask)

    def forward(self, query, key, value):
        """Returns the attention."""
        return super().forward(query, key, value, self.mask)


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
@pytest.mark.parametrize("keys", [3, 5, 9])
def test_causal_attention_over_other_lengths(version, keys):
    """Query i sees the keys up to i, however many there are."""
    model, inputs = Attention(is_causal=True), tensors(5, keys=keys)

    compiled, pack = compiled_for(version, model, inputs)

    assert "aten_experimental" == pack
    torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_in_half_precision(dtype):
    """Lowest numbers of float16 are no infinities."""
    mask = torch.where(SEEN, 0.5, torch.finfo(dtype).min).to(dtype)
    inputs = tuple(tensor.to(dtype) for tensor in tensors(5, keys=7))
    model = Masked(causal=False)

    compiled, pack = compiled_for("11.4.0", model, (*inputs, mask))

    assert "aten_experimental" == pack
    expected = model(*inputs, mask)
    sees = SEEN.any(-1, keepdim=True).expand_as(expected)
    torch.testing.assert_close(compiled(*inputs, mask)[sees], expected[sees], rtol=2e-2, atol=2e-2)


def test_a_mask_is_prepared_once_for_all_layers():
    """Layers share what is computed of it."""

    class Layers(nn.Module):
        def forward(self, query, key, value, mask):
            for _ in range(3):
                query = scaled_dot_product_attention(query, key, value, mask)
            return query

    inputs = (*tensors(), torch.rand(2, 1, 5, 5) > 0.3)
    one, _ = compiled_for("11.4.0", Masked(causal=False), inputs)
    three, _ = compiled_for("11.4.0", Layers(), inputs)

    torch.testing.assert_close(three(*inputs), Layers()(*inputs), rtol=1e-5, atol=1e-5)
    counts = [compiled.report.blocks[0].layers for compiled in (one, three)]
    # An attention has two layers, and its query's scale and the selection behind it two constants and a layer each.
    assert counts[1] - counts[0] <= 2 * 6


@pytest.mark.parametrize(
    ("version", "options", "inputs", "reason"),
    [
        (
            "8.6.0",
            {},
            tensors(),
            "needs the layer IAttention, which TensorRT has from version 10.14 on",
        ),
        ("11.4.0", {}, tuple(tensor[0] for tensor in tensors()), "four dimensions"),
    ],
    ids=["version", "rank"],
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


def test_layers_of_other_lengths_share_a_mask():
    """Each gets the mask for its own number of queries."""

    class Levels(nn.Module):
        def forward(self, query, key, value, mask):
            coarse = scaled_dot_product_attention(query[:, :, :2], key, value, mask)
            return scaled_dot_product_attention(query, key, value, mask), coarse

    mask = torch.rand(2, 1, 1, 5) > 0.4
    inputs = (*tensors(), mask)

    compiled, pack = compiled_for("11.4.0", Levels(), inputs)

    assert "aten_experimental" == pack
    torch.testing.assert_close(compiled(*inputs), Levels()(*inputs), rtol=1e-5, atol=1e-5)
