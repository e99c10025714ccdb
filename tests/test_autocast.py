"""The setting ``autocast``: a float32 model computes in lower precision where that is accurate enough."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import SettingsError
from torchtrt.packs import AutocastRule, local_pack, use_packs
from torchtrt_reference import VERSIONS

X = torch.linspace(-2, 2, 24).reshape(4, 6)
BFLOAT16_VERSIONS = [version for version in VERSIONS if not version.startswith("8.")]


def compiled(model, *inputs, **settings):
    """The model, all of it in engines."""
    return torchtrt.compile(
        model.eval(), inputs or (X,), require_full_compilation=True, min_block_size=1, **settings
    )


def dtypes_of(module, op):
    """The dtypes in which an op's nodes compute, and how many in each."""
    dtypes = [row.dtypes for row in module.report.converted if row.op == op]
    return {dtype: count for row in dtypes for dtype, count in row.items()}


@pytest.mark.parametrize("version", BFLOAT16_VERSIONS)
def test_bfloat16_is_a_lower_precision_too(version):
    """Where TensorRT has it."""
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 6))
    with torchtrt.use_tensorrt(f"reference@{version}"):
        fast = compiled(model, autocast=torch.bfloat16)

    assert dtypes_of(fast, "aten.linear.default") == {"bfloat16": 2}
    torch.testing.assert_close(fast(X), model(X), atol=0.02, rtol=0.02)


class Block(nn.Module):
    """Something of every rule."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.normalization = nn.LayerNorm(6)

    def forward(self, x):
        """Returns a product, normalized, and the maximum of its activations."""
        product = torch.relu(self.linear(x))
        return self.normalization(product), torch.softmax(product, -1), product.amax(-1)


def test_products_are_lowered_normalizations_are_not_and_the_rest_follows():
    """The rules of PyTorch's autocast; the report says what computes in what."""
    fast = compiled(Block(), autocast=torch.float16)

    assert dtypes_of(fast, "aten.linear.default") == {"float16": 1}
    assert dtypes_of(fast, "aten.relu.default") == {"float16": 1}
    assert dtypes_of(fast, "aten.amax.default") == {"float16": 1}
    assert dtypes_of(fast, "aten.layer_norm.default") == {"float32": 1}
    assert dtypes_of(fast, "aten.softmax.int") == {"float32": 1}
    assert [torch.float32] * 3 == [output.dtype for output in fast(X)]


@pytest.mark.parametrize(
    "exclusion",
    [
        {"autocast_excluded_ops": "aten.linear"},
        {"autocast_excluded_nodes": ["linear"]},
        {"autocast_excluded_nodes": [r"blocks\.0\.linear"]},
        {"autocast_excluded_nodes": [r"blocks\.\d"]},
    ],
    ids=["op", "node", "module", "modules"],
)
def test_what_is_excluded_computes_in_float32(exclusion):
    """An op, a node, or all of a module of the model."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block()])

        def forward(self, x):
            return self.blocks[0](x)

    fast = compiled(Model(), autocast=torch.float16, **exclusion)

    assert dtypes_of(fast, "aten.linear.default") == {"float32": 1}
    assert dtypes_of(fast, "aten.relu.default") == {"float32": 1}


def test_numbers_and_constants_beyond_float16_keep_their_op_in_float32():
    """A mask of -1e9 would be infinite, and a row of them no numbers."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)
            self.register_buffer("offset", torch.full((6,), 1e6))

        def forward(self, x, mask):
            scores = self.linear(x)
            filled = scores.masked_fill(mask, -1e9)
            return filled.softmax(-1), (scores + self.offset)

    model, mask = Masked().eval(), torch.ones(4, 6, dtype=torch.bool)
    fast = compiled(model, X, mask, autocast=torch.float16)

    for got, wanted in zip(fast(X, mask), model(X, mask), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-2, rtol=1e-3)


def test_arguments_that_are_left_out_keep_nothing_in_float32():
    """A linear layer without bias, sums, attention without mask and a limit on one side are lowered."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6, bias=False)

        def forward(self, x):
            y = self.linear(x)
            y = y + torch.relu(y) * 2
            heads = y.view(1, 1, 4, 6)
            attended = nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return torch.clamp(attended.view(4, 6) + y, max=3.0)

    model = Model().eval()
    fast = compiled(model, autocast=torch.float16)

    kept = [row.op for row in fast.report.converted if "float32" in row.dtypes]
    assert ["aten._to_copy.default"] == kept
    torch.testing.assert_close(fast(X), model(X), atol=1e-2, rtol=1e-2)


INTS = torch.arange(6) * 100_000


@pytest.mark.parametrize(
    "compute",
    [
        lambda y: y + 100_000,
        lambda y: y.masked_fill(y > 0, -(10**9)).softmax(-1),
        lambda y: torch.where(y > 0, y, -100_000),
        lambda y: y * (y.shape[0] * 100_000),
        lambda y: y + INTS,
        lambda y: y / (y * 0 + 1e-8),
        lambda y: y * 1e-9,
        lambda y: y * torch.full((6,), 1e-9),
        lambda y: torch.nn.functional.batch_norm(
            y, torch.zeros(6), torch.full((6,), 1e-10), eps=1e-12
        ),
    ],
    ids=["sum", "filled", "where", "size", "integers", "epsilon", "small", "constant", "scale"],
)
def test_what_the_lower_precision_cannot_hold_is_computed_in_float32(compute):
    """Numbers, sizes and constants, large or small, and integers as elements."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return compute(self.linear(x))

    torch.manual_seed(0)
    model = Model().eval()
    expected = model(X)

    result = compiled(model, autocast=torch.float16)(X)

    scale = expected.abs().max().item()
    torch.testing.assert_close(result, expected, atol=1e-2 * scale, rtol=1e-2)


def test_rows_that_a_mask_hides_entirely_are_as_eager_has_them():
    """Infinity in a mask is infinity in any precision."""

    class Attention(nn.Module):
        def forward(self, x, mask):
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x, mask = torch.rand(1, 2, 4, 8), torch.zeros(4, 4)
    mask[1] = -torch.inf
    fast = compiled(Attention(), x, mask, autocast=torch.float16)

    torch.testing.assert_close(fast(x, mask), Attention()(x, mask), atol=1e-2, rtol=0)


@pytest.mark.parametrize("value", [torch.finfo(torch.float32).min, -1e4])
def test_additive_masks_of_attention_stay_finite(value):
    """Those of libraries hold float32's minimum, which float16 has not."""

    class Attention(nn.Module):
        def forward(self, x, mask):
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x = torch.rand(1, 2, 4, 8)
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), value)
    mask[2] = value  # a row that is masked entirely
    fast = compiled(Attention(), x, mask, autocast=torch.float16)

    assert fast(x, mask).isfinite().all()
    rows = [0, 1, 3]
    expected = Attention()(x, mask)
    torch.testing.assert_close(fast(x, mask)[:, :, rows], expected[:, :, rows], atol=1e-2, rtol=0)


def test_what_the_model_casts_itself_stays_as_it_says():
    """An op that names a dtype computes in it."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            y = self.linear(x)
            return y.double().to(torch.float32), y.to(torch.float32) * 3, y.sum(dtype=torch.float32)

    model = Model().eval()
    fast = compiled(model, autocast=torch.float16, truncate_double=True)

    for got, wanted in zip(fast(X), model(X), strict=True):
        assert wanted.dtype is got.dtype
        torch.testing.assert_close(got, wanted, atol=1e-2, rtol=1e-2)


def test_buffers_that_the_model_writes_keep_their_dtype():
    """They are float32 in the model, and stay so."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)
            self.register_buffer("last", torch.zeros(4, 6))

        def forward(self, x):
            y = torch.relu(self.linear(x) + self.last)
            self.last.copy_(y)
            return y

    model, twin = Model().eval(), Model().eval()
    twin.load_state_dict(model.state_dict())
    fast = compiled(model, autocast=torch.float16)

    for _ in range(2):
        torch.testing.assert_close(fast(X), twin(X), atol=1e-2, rtol=1e-2)
    assert model.last.dtype is torch.float32
    torch.testing.assert_close(model.last, twin.last, atol=1e-2, rtol=1e-2)


def test_branches_compute_in_float32():
    """What is inside control flow is as the model has it."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            y = self.linear(x)
            return torch.cond(y.sum() > 0, lambda y: y * 2, lambda y: y - 1, (y,))

    model = Model().eval()
    with torch.no_grad():
        expected = model(X)
    torch.testing.assert_close(
        compiled(model, autocast=torch.float16)(X), expected, atol=1e-2, rtol=1e-2
    )


def test_a_pack_may_have_rules_for_ops():
    """The first pack in pack order that has one decides; an op without a rule computes in float32."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return torch.exp(torch.relu(self.linear(x)))

    before = dtypes_of(compiled(Model(), autocast=torch.float16), "aten.exp.default")
    with use_packs():
        local_pack.autocast_rule(AutocastRule.PROMOTE, torch.ops.aten.exp, "nowhere::op")
        local_pack.autocast_rule(AutocastRule.FLOAT32, "aten.relu.default")
        after = compiled(Model(), autocast=torch.float16)

    assert before == {"float32": 1}
    assert dtypes_of(after, "aten.exp.default") == {"float16": 1}
    assert dtypes_of(after, "aten.relu.default") == {"float16": 1}


def test_torch_tensorrts_name_for_it_is_understood():
    """``enabled_precisions`` becomes ``autocast`` to the lower one."""
    both = compiled(Block(), enabled_precisions={torch.float32, torch.float16})
    single = compiled(Block(), enabled_precisions={torch.float32})

    assert dtypes_of(both, "aten.linear.default") == {"float16": 1}
    assert dtypes_of(single, "aten.linear.default") == {"float32": 1}
    with pytest.raises(SettingsError, match=r"enabled_precisions=.*torch\.int8.* is not usable"):
        compiled(Block(), enabled_precisions={torch.float16, torch.int8})


@pytest.mark.parametrize(
    "settings",
    [
        {"autocast": torch.int8},
        {"autocast": "float16"},
        {"autocast_excluded_nodes": "linear"},
        {"autocast_excluded_nodes": ["("]},
        {"autocast_excluded_nodes": [3]},
    ],
)
def test_unusable_values_are_refused(settings):
    """With what is usable."""
    with pytest.raises(SettingsError, match="is not usable: it must be"):
        compiled(Block(), **settings)


def test_two_settings_that_ask_for_different_dtypes_are_refused():
    """Neither wins silently."""
    for precisions in ({torch.float32}, {torch.float32, torch.bfloat16}):
        with pytest.raises(SettingsError, match="ask for different dtypes"):
            compiled(Block(), autocast=torch.float16, enabled_precisions=precisions)
    same = {torch.float32, torch.float16}
    compiled(Block(), autocast=torch.float16, enabled_precisions=same)


def test_a_pattern_that_excludes_nothing_is_a_warning():
    """A name that was mistaken, or half of one."""
    with pytest.warns(UserWarning, match="'lin' matches the whole name of no node"):
        compiled(Block(), autocast=torch.float16, autocast_excluded_nodes=["lin", "linear"])


def test_models_that_are_half_already_are_left_alone():
    """There is nothing to lower."""
    model = Block().eval().half()
    fast = compiled(model, X.half(), autocast=torch.float16)

    for got, wanted in zip(fast(X.half()), model(X.half()), strict=True):
        assert torch.float16 is got.dtype
        torch.testing.assert_close(got, wanted, atol=1e-2, rtol=1e-2)
