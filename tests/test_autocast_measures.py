"""Autocast by measured magnitudes and by the lengths of sums."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchtrt
from torchtrt.errors import InputError, SettingsError, SettingsWarning
from torchtrt_converters_aten_core.passes.sum_lengths import sum_length

aten = torch.ops.aten
X = torch.linspace(-2, 2, 24).reshape(4, 6)


class Large(nn.Module):
    """Three layers; the results of the second one, and its activations, exceed what float16 holds."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 3)
        with torch.no_grad():
            self.first.weight.mul_(100)
            self.second.weight.mul_(3e4)
            self.third.weight.mul_(1e-3)

    def forward(self, x):
        """Returns numbers that float16 holds."""
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def compiled(model, inputs=(X,), **settings):
    """The model, all of it in engines, in float16 where it can be."""
    settings = {"autocast": torch.float16, "require_full_compilation": True, **settings}
    return torchtrt.compile(model.eval(), inputs, min_block_size=1, **settings)


def linear_dtypes(module):
    """How many linear layers compute in each dtype."""
    return {
        dtype: count
        for row in module.report.converted
        if row.op == "aten.linear.default"
        for dtype, count in row.dtypes.items()
    }


def test_what_exceeds_float16_is_right_with_calibration_and_infinite_without():
    """The report names the layer, and what follows it, with the reason."""
    model = Large()

    assert not compiled(model)(X).isfinite().all()
    careful = compiled(model, autocast_calibration_dataloader=[(X,)])

    torch.testing.assert_close(careful(X), model(X), rtol=1e-2, atol=1e-2)
    assert {"float16": 1, "float32": 2} == linear_dtypes(careful)
    first, second = careful.report.in_float32
    assert first.startswith("linear_1 (aten.linear.default) returns magnitudes up to")
    assert second.startswith("linear_2 (aten.linear.default) reads relu_1 with magnitudes up to")
    assert first.endswith("above 65504.")
    assert "In float32: linear_1" in str(careful.report)


@pytest.mark.parametrize(
    "batches",
    [
        [(X / 1e4,), [X], {"x": X / 1e3}],
        [X],
        DataLoader(TensorDataset(X), batch_size=4),
        (batch for batch in [X]),
    ],
    ids=["tuples and dictionaries", "tensors", "loader", "generator"],
)
def test_batches_are_inputs_of_the_model(batches):
    """In any iterable; the largest of all counts."""
    model = Large()
    careful = compiled(model, autocast_calibration_dataloader=batches)

    assert 2 == len(careful.report.in_float32)
    assert careful.settings.autocast_calibration_dataloader is None
    torch.testing.assert_close(careful(X), model(X), rtol=1e-2, atol=1e-2)


def test_batches_of_small_numbers_exclude_nothing():
    """Measured numbers count, and possible ones do not."""
    fast = compiled(Large(), autocast_calibration_dataloader=[X * 0])
    assert [] == fast.report.in_float32
    assert {"float16": 3} == linear_dtypes(fast)


def test_infinities_and_numbers_of_8_bits_are_no_obstacle():
    """A mask may be infinite; what is quantized is measured, too."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            mask = torch.zeros_like(x).masked_fill(x > 1, -torch.inf)
            rounded = x.to(torch.float8_e4m3fn).float()
            return torch.softmax(self.linear(rounded) + mask, -1)

    model, x = Model(), X[:3]
    fast = torchtrt.compile(
        model.eval(),
        [x],
        min_block_size=1,
        autocast=torch.float16,
        autocast_calibration_dataloader=[x],
    )
    assert [] == fast.report.in_float32
    assert {"float16": 1} == linear_dtypes(fast)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-2, atol=1e-2)


def test_bfloat16_holds_what_float32_holds():
    """Its limit is another one."""
    fast = compiled(Large(), autocast=torch.bfloat16, autocast_calibration_dataloader=[X])
    assert [] == fast.report.in_float32


def test_a_threshold_takes_the_place_of_the_largest_number():
    """Of what is read and what is returned."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8))
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[0].bias.fill_(0)
    largest = float(X.sum(1).abs().max())
    settings = {"autocast_calibration_dataloader": [X]}

    over = compiled(model, autocast_max_output_threshold=largest * 1.01, **settings)
    under = compiled(model, autocast_max_output_threshold=largest * 0.99, **settings)

    assert {"float16": 2} == linear_dtypes(over)
    assert {"float32": 2} == linear_dtypes(under)


def test_a_model_that_writes_to_buffers_and_inputs_is_measured_without_a_trace():
    """And draws the random numbers that it would."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(6))
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            self.count.add_(1)
            x.mul_(2)
            return self.linear(x) + self.count

    model, batch = Counting().eval(), X.clone()
    eager = copy.deepcopy(model)
    state = torch.get_rng_state()
    fast = torchtrt.compile(
        model,
        [X.clone()],
        min_block_size=1,
        autocast=torch.float16,
        autocast_calibration_dataloader=[batch],
    )

    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(batch, X)
    assert torch.equal(model.count, torch.zeros(6))
    torch.testing.assert_close(fast(X.clone()), eager(X.clone()), rtol=1e-2, atol=1e-2)


def test_a_model_with_replaceable_weights_is_measured_and_refitted():
    """The measurement is no step from a weight to an engine."""
    first, second = Large(), Large()
    with torch.no_grad():
        second.first.weight.mul_(1.5)
    careful = compiled(first, autocast_calibration_dataloader=[X], immutable_weights=False)
    refitted = torchtrt.refit_module_weights(careful, second)

    torch.testing.assert_close(refitted(X), second(X), rtol=1e-2, atol=1e-2)


def test_sizes_may_vary_in_batches():
    """As they may in calls."""
    model = Large()
    varying = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(8, 6))
    careful = compiled(model, [varying], autocast_calibration_dataloader=[X[:3], X.repeat(2, 1)])
    x = X[:2]

    torch.testing.assert_close(careful(x), model(x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("batches", "error", "said"),
    [
        ([], SettingsError, "no batches. An iterator can be read once"),
        ([(X, X)], InputError, "Batch 0 of .* has other inputs than the model"),
        (
            [X, X.double()],
            InputError,
            r"Batch 1 .* a torch.float64 tensor of shape \(4, 6\) for the input",
        ),
        ([X[:, :3]], InputError, r"shape \(4, 3\)"),
        ([(3,)], InputError, "an int for the input 'x', not a tensor"),
        ([{"y": X}], InputError, "has other inputs"),
    ],
    ids=["none", "too many", "dtype", "shape", "number", "name"],
)
def test_batches_that_are_no_inputs_are_an_error(batches, error, said):
    """Which counts them."""
    with pytest.raises(error, match=said):
        compiled(Large(), autocast_calibration_dataloader=batches)


@pytest.mark.parametrize("value", [X, "batches", 3, {"x": X}])
def test_one_batch_is_no_collection_of_them(value):
    """A tensor would be read row by row."""
    with pytest.raises(SettingsError, match="an iterable of batches"):
        torchtrt.CompilationSettings(autocast_calibration_dataloader=value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, "512"])
def test_a_threshold_is_a_positive_number(value):
    """Whether it is an integer or not."""
    with pytest.raises(SettingsError, match="a number above 0"):
        torchtrt.CompilationSettings(autocast_max_output_threshold=value)


def test_what_has_no_effect_is_a_warning():
    """A threshold without batches, and all of it without autocast."""
    with pytest.warns(SettingsWarning, match="threshold is for autocast_calibration_dataloader"):
        compiled(Large(), autocast_max_output_threshold=512)
    with pytest.warns(SettingsWarning) as warned:
        compiled(
            Large(),
            autocast=None,
            autocast_calibration_dataloader=[X],
            autocast_max_depth_of_reduction=4,
        )
    (text,) = (str(warning.message) for warning in warned)
    assert "autocast_calibration_dataloader is for the setting autocast" in text
    assert "autocast_max_depth_of_reduction is for the setting autocast" in text


def test_long_sums_stay_in_float32():
    """Without any batches."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8))
    fast = compiled(model, autocast_max_depth_of_reduction=6)

    assert {"float16": 1, "float32": 1} == linear_dtypes(fast)
    (line,) = fast.report.in_float32
    assert "linear_1 (aten.linear.default) sums 8 terms" in line
    assert "more than autocast_max_depth_of_reduction=6" in line


def rand(*shape):
    """Returns random numbers."""
    return torch.rand(shape)


SUMS = {
    "linear": (aten.linear, (rand(2, 3, 5), rand(4, 5)), 5),
    "mm": (aten.mm, (rand(2, 5), rand(5, 4)), 5),
    "bmm": (aten.bmm, (rand(3, 2, 5), rand(3, 5, 4)), 5),
    "mv": (aten.mv, (rand(2, 5), rand(5)), 5),
    "matmul": (aten.matmul, (rand(5), rand(3, 5, 4)), 5),
    "addmm": (aten.addmm, (rand(4), rand(2, 5), rand(5, 4)), 5),
    "addmv": (aten.addmv, (rand(2), rand(2, 5), rand(5)), 5),
    "addr": (aten.addr, (rand(2, 3), rand(2), rand(3)), 1),
    "baddbmm": (aten.baddbmm, (rand(3, 2, 4), rand(3, 2, 5), rand(3, 5, 4)), 5),
    "addbmm": (aten.addbmm, (rand(2, 4), rand(3, 2, 5), rand(3, 5, 4)), 15),
    "bilinear": (aten.bilinear, (rand(2, 3), rand(2, 5), rand(4, 3, 5)), 15),
    "chain": (aten.chain_matmul, ([rand(2, 3), rand(3, 7), rand(7, 4)],), 7),
    "multi_dot": (aten.linalg_multi_dot, ([rand(2, 3), rand(3, 7), rand(7, 4)],), 7),
    "einsum": (aten.einsum, ("bij,bjk -> bik", [rand(2, 3, 5), rand(2, 5, 4)]), 5),
    "einsum of two": (aten.einsum, ("bij,bij->b", [rand(2, 3, 5), rand(2, 3, 5)]), 15),
    "einsum without arrow": (aten.einsum, ("ij,jk", [rand(3, 5), rand(5, 4)]), 5),
    "einsum with dots": (
        aten.einsum, ("...ij,...jk->...ik", [rand(2, 3, 5), rand(2, 5, 4)]), 5,
    ),
    "attention": (
        aten.scaled_dot_product_attention,
        (rand(1, 2, 3, 4), rand(1, 2, 9, 4), rand(1, 2, 9, 4)), 9,
    ),
    "convolution": (aten.conv2d, (rand(1, 4, 9, 9), rand(6, 4, 3, 2)), 24),
    "groups": (aten.conv1d, (rand(1, 4, 9), rand(6, 2, 3), None, [1], [0], [1], 2), 6),
    "any convolution": (
        aten.convolution,
        (rand(1, 4, 9), rand(6, 4, 3), None, [1], [0], [1], False, [0], 1), 12,
    ),
    "transposed": (aten.conv_transpose1d, (rand(1, 4, 9), rand(4, 6, 3)), 12),
    "any transposed": (
        aten.convolution,
        (rand(1, 4, 9), rand(4, 3, 3), None, [1], [0], [1], True, [0], 2), 6,
    ),
    "conv_tbc": (aten.conv_tbc, (rand(9, 1, 4), rand(3, 4, 6), rand(6)), 12),
    "average": (aten.avg_pool2d, (rand(1, 2, 9, 9), [3]), 9),
    "another average": (aten.avg_pool2d, (rand(1, 2, 9, 9), [3, 2]), 6),
    "adaptive": (aten.adaptive_avg_pool2d, (rand(1, 2, 8, 6), [4, 1]), 12),
    "relu": (aten.relu, (rand(3),), 1),
}  # fmt: skip
"""For each op and its arguments, how many terms an element of its result is the sum of."""


@pytest.mark.parametrize("name", SUMS)
def test_the_number_of_terms(name):
    """Of one element: ones instead of numbers give it, where the op only sums products."""
    op, arguments, length = SUMS[name]
    graph = torch.fx.Graph()

    def node_of(value):
        if isinstance(value, torch.Tensor):
            node = graph.placeholder(f"x{len(graph.nodes)}")
            node.meta["val"] = value
            return node
        if isinstance(value, list):
            return [node_of(part) for part in value]
        return value

    overload = getattr(op, op.overloads()[0])
    node = graph.call_function(overload, tuple(map(node_of, arguments)))
    assert length == sum_length(node)

    def one(value):
        if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
            return [torch.ones_like(part) for part in value]
        return torch.ones_like(value) if isinstance(value, torch.Tensor) else value

    if name not in _NO_SUMS_OF_ONES:
        assert length == overload(*map(one, arguments)).max()


_NO_SUMS_OF_ONES = {
    *("addmm", "addmv", "addr", "baddbmm", "addbmm", "conv_tbc"),  # and a summand
    *("chain", "multi_dot"),  # several products
    *("attention", "average", "another average", "adaptive"),  # normalized
}


def test_torch_compile_has_no_inputs_of_a_whole_model():
    """Its parts have inputs of their own."""
    options = {"autocast": torch.float16, "autocast_calibration_dataloader": [X]}
    fast = torch.compile(Large().eval(), backend="torchtrt", options=options)

    with torch.no_grad(), pytest.raises(Exception, match="compiles parts"):
        fast(X)
