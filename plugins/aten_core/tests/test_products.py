"""Products of many dimensions with one matrix are one product of three or two, and equal eager's."""

import pytest
import torch
from torch.nn import functional as F

import torchtrt
from torchtrt.errors import SettingsWarning
from torchtrt.tensorrt import Capability, supports
from torchtrt.testing import run_compiled

WEIGHT, BIAS = torch.randn(5, 6), torch.randn(5)


class Linear(torch.nn.Module):
    def forward(self, x):
        return F.linear(x, WEIGHT, BIAS)


class Product(torch.nn.Module):
    def forward(self, x):
        return x @ WEIGHT.T


class OfTwoInputs(torch.nn.Module):
    def forward(self, x, matrix):
        return x @ matrix


def ranks(layers):
    """Returns the ranks of the products' first operands."""
    products = [layer for layer in layers if layer.type.name == "MATRIX_MULTIPLY"]
    return [len(layer.get_input(0).shape) for layer in products]


@pytest.mark.parametrize("model", [Linear().eval(), Product().eval()], ids=["linear", "matmul"])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varying"])
@pytest.mark.usefixtures("version")
def test_a_product_with_one_matrix_has_three_dimensions_at_most(layers, model, rank, varies):
    """The first dimension may vary."""
    sizes = (3, *range(2, rank), 6)
    shapes = ({0: torch.export.Dim("n", min=1, max=7)},) if varies else None
    compiled = torchtrt.compile(
        model, (torch.randn(sizes),), dynamic_shapes=shapes, require_full_compilation=True
    )
    assert ranks(layers) == [min(rank, 3)]
    for batch in (3, 7, 1) if varies else (3,):
        x = torch.randn(batch, *sizes[1:])
        torch.testing.assert_close(run_compiled(compiled, x), model(x))


@pytest.mark.usefixtures("version")
def test_sizes_in_the_middle_may_vary(layers):
    """The product stays as it is then."""
    x = torch.randn(2, 3, 4, 6)
    shapes = ({1: torch.export.Dim("h", min=1, max=9)},)
    compiled = torchtrt.compile(
        Linear().eval(), (x,), dynamic_shapes=shapes, require_full_compilation=True
    )
    assert ranks(layers) == [4]
    for rows in (1, 3, 9):
        x = torch.randn(2, rows, 4, 6)
        torch.testing.assert_close(run_compiled(compiled, x), Linear()(x))


@pytest.mark.parametrize("ones", [1, 2])
@pytest.mark.parametrize("matrix", [(6, 5), (1, 6, 5)])
@pytest.mark.usefixtures("version")
def test_rows_alone_are_rows_of_one_product(layers, ones, matrix):
    """As of a batch of texts with one token each; there may be any number of them."""
    least, usual, most = ((batch, *[1] * ones, 6) for batch in (0, 3, 7))
    inputs = [
        torchtrt.Input(min_shape=least, opt_shape=usual, max_shape=most),
        torch.randn(matrix),
    ]
    model = OfTwoInputs().eval()
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True, min_block_size=1)
    assert ranks(layers) == [2]
    for shape in (least, usual, most, (1, *usual[1:])):
        x = torch.randn(shape)
        torch.testing.assert_close(run_compiled(compiled, x, inputs[1]), model(x, inputs[1]))


@pytest.mark.parametrize(
    ("shape", "matrix", "rank"),
    [
        ((2, 3, 4, 6), (6, 5), 3),
        ((2, 3, 4, 6), (1, 6, 5), 3),
        ((2, 3, 4, 6), (3, 6, 5), 4),
        ((2, 3, 4, 6), (6,), 4),
    ],
)
@pytest.mark.usefixtures("version")
def test_what_the_second_operand_may_be(layers, shape, matrix, rank):
    """One matrix, not several and no vector."""
    model, inputs = OfTwoInputs().eval(), (torch.randn(shape), torch.randn(matrix))
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True)
    assert ranks(layers) == [rank]
    torch.testing.assert_close(run_compiled(compiled, *inputs), model(*inputs))


@pytest.mark.parametrize("varying", [("n", "depth"), ("n", "width"), ("depth", "width")])
@pytest.mark.usefixtures("version")
def test_an_empty_batch_where_the_matrix_varies(varying):
    """No size then follows only from the number of elements."""
    sizes = {"n": 2, "depth": 6, "width": 5}
    low = {name: 0 if name in varying else size for name, size in sizes.items()}
    high = {name: 9 if name in varying else size for name, size in sizes.items()}
    ends = (low, sizes, high)
    inputs = [
        torchtrt.Input(ranges=[[(end["n"], 3, 4, end["depth"]) for end in ends]]),
        torchtrt.Input(ranges=[[(end["depth"], end["width"]) for end in ends]]),
    ]
    model = OfTwoInputs().eval()
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True, min_block_size=1)
    for change in ({}, *({name: size} for name in varying for size in (0, 1, 9))):
        now = {**sizes, **change}
        x = torch.randn(now["n"], 3, 4, now["depth"])
        matrix = torch.randn(now["depth"], now["width"])
        torch.testing.assert_close(run_compiled(compiled, x, matrix), x @ matrix)


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5), (2, 0, 0, 5), (2, 0, 3, 5), (2, 8, 0, 5), (2, 9, 9, 5)]
)
@pytest.mark.usefixtures("version")
def test_sizes_in_the_middle_may_be_nothing(shape):
    """A size of 0 that is computed where the engine runs does not stand for another one."""

    class Einsum(torch.nn.Module):
        def forward(self, x):
            return torch.einsum("...k,kn->...n", x, WEIGHT.T[:5])

    least, most = (2, 0, 0, 5), (2, 9, 9, 5)
    images = torchtrt.Input(min_shape=least, opt_shape=(2, 3, 4, 5), max_shape=most)
    compiled = torchtrt.compile(
        Einsum().eval(), [images], require_full_compilation=True, min_block_size=1
    )
    x = torch.randn(shape)
    torch.testing.assert_close(run_compiled(compiled, x), Einsum()(x))


@pytest.mark.parametrize("model", [Linear().eval(), Product().eval()], ids=["linear", "matmul"])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.usefixtures("version")
def test_rows_of_several_sizes_that_vary(layers, model, rank):
    """TensorRT 8.6 may mix them up; there they are the rows of one product, of which there may be none."""
    sizes = [{"least": 0, "usual": 3, "most": 7}, {"least": 0, "usual": 2, "most": 5}]
    shapes = [
        (*(size[limit] for size in sizes), *range(2, rank - 1), 6)
        for limit in ("least", "usual", "most")
    ]
    spec = torchtrt.Input(min_shape=shapes[0], opt_shape=shapes[1], max_shape=shapes[2])
    compiled = torchtrt.compile(model, [spec], require_full_compilation=True, min_block_size=1)

    assert ranks(layers) == [rank if supports(Capability.SEVERAL_VARYING_SIZES) else 2]
    for leading in ((3, 2), (7, 1), (1, 5), (0, 2), (2, 0)):
        x = torch.randn(*leading, *shapes[0][2:])
        torch.testing.assert_close(run_compiled(compiled, x), model(x))


class Masked(torch.nn.Module):
    """Attention with a mask for each sequence."""

    def forward(self, query, key, mask):
        return F.scaled_dot_product_attention(query, key, key, mask[:, None, None])


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
@pytest.mark.usefixtures("version")
def test_masked_attention_of_a_batch_that_varies(layers, queries, dtype):
    """TensorRT 8.6 multiplies the heads of each sequence by themselves, and is slow; there they are one batch."""
    most = {"n": 5, "keys": 7}
    specs = [
        torchtrt.Input(min_shape=low, opt_shape=high, max_shape=high, dtype=kind)
        for low, high, kind in (
            ((1, 2, queries, 8), (most["n"], 2, queries, 8), torch.float32),
            ((1, 2, 1, 8), (most["n"], 2, most["keys"], 8), torch.float32),
            ((1, 1), (most["n"], most["keys"]), dtype),
        )
    ]
    compiled = torchtrt.compile(Masked().eval(), specs, require_full_compilation=True)

    products = ranks(layers)
    assert products == [4 if supports(Capability.SEVERAL_VARYING_SIZES) else 3] * len(products)
    for batch, keys in ((5, 7), (1, 1), (2, 3), (3, 1)):
        query, key = torch.randn(batch, 2, queries, 8), torch.randn(batch, 2, keys, 8)
        mask = torch.randn(batch, keys)
        mask = mask > 0 if dtype is torch.bool else mask
        inputs = query, key, mask
        torch.testing.assert_close(run_compiled(compiled, *inputs), Masked()(*inputs))


@pytest.mark.usefixtures("version")
def test_rows_of_several_dynamic_sizes_and_a_matrix_of_another():
    """There may be no rows, and the number of columns does not follow from no elements."""
    ranges = [[(0, 0, 6), (3, 2, 6), (7, 5, 6)]], [[(6, 1), (6, 4), (6, 9)]]
    inputs = [torchtrt.Input(ranges=range_) for range_ in ranges]
    model = OfTwoInputs().eval()
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True, min_block_size=1)
    for batch, rows, columns in ((3, 2, 4), (0, 2, 9), (7, 0, 1), (1, 1, 1)):
        x, matrix = torch.randn(batch, rows, 6), torch.randn(6, columns)
        torch.testing.assert_close(run_compiled(compiled, x, matrix), x @ matrix)


def operand_dtypes(layers):
    """Returns the dtype of each product's first operand, as casts before it have it."""
    casts = {
        layer.get_output(0).name: layer.to_type.name
        for layer in layers
        if layer.type.name == "CAST"
    }
    products = [layer for layer in layers if layer.type.name == "MATRIX_MULTIPLY"]
    return [casts.get(layer.get_input(0).name) for layer in products]


@pytest.mark.parametrize("model", [Linear().eval(), Product().eval(), OfTwoInputs().eval()])
@pytest.mark.usefixtures("version")
def test_products_of_float16_sum_in_float32_where_that_is_required(layers, model, monkeypatch):
    """TensorRT takes casts around a product for this."""
    for name, value in (("WEIGHT", WEIGHT.half()), ("BIAS", BIAS.half())):
        monkeypatch.setitem(globals(), name, value)
    inputs = [torch.randn(3, 6).half(), torch.randn(6, 5).half()]
    inputs = inputs if isinstance(model, OfTwoInputs) else inputs[:1]
    for required in (True, False):
        layers.clear()
        compiled = torchtrt.compile(
            model, inputs, use_fp32_acc=required, require_full_compilation=True
        )
        assert ["FLOAT" if required else None] == operand_dtypes(layers)
        actual, expected = run_compiled(compiled, *inputs), model(*inputs)
        torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_other_dtypes_are_summed_in_float32_as_they_are(layers, dtype):
    """The setting has no effect there, and a warning names it."""
    model, x = OfTwoInputs().eval(), torch.randn(3, 6).to(dtype)

    with pytest.warns(
        SettingsWarning, match="use_fp32_acc=True, and nothing is computed in float16"
    ):
        torchtrt.compile(model, [x, x.T.contiguous()], use_fp32_acc=True, min_block_size=1)

    assert [None] == operand_dtypes(layers)
