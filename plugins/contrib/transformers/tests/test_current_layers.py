"""Models of transformers become the layers that a current TensorRT has, in one engine."""

import pytest
import torch
from torch import nn

import torchtrt
from tools.current_layers import MODELS, prompts

transformers = pytest.importorskip("transformers")
LANGUAGE_MODELS = [name for name, model in MODELS.items() if model.library == "transformers"]


def each_model():
    """Yields each model on two versions; on the old one, all but the first take long and add little."""
    for number, name in enumerate(LANGUAGE_MODELS):
        yield pytest.param(name, "11.4.0")
        yield pytest.param(name, "8.6.0", marks=[pytest.mark.slow] if number else [])


@pytest.mark.parametrize(("name", "version"), list(each_model()))
def test_a_language_model_is_one_engine_of_current_layers(name, version):
    """Attention with its mask and grouped queries, rotary embeddings, and the products of experts."""
    model = MODELS[name].build()
    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(2, 8), max_shape=(4, 32), dtype=torch.int64)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [sizes, sizes], require_full_compilation=True)

    assert 1 == len(compiled.report.blocks)
    layers = {row.capability: len(row.nodes) for row in compiled.report.layers}
    if version == "11.4.0":
        assert {"ATTENTION": 2, "ROTARY_EMBEDDING": 4} == layers
    for batch, length in ((1, 1), (2, 8), (4, 32), (3, 5)):
        inputs = prompts(batch, length)
        seen = inputs[1].bool()
        torch.testing.assert_close(
            compiled(*inputs)[seen], model(*inputs)[seen], rtol=1e-4, atol=1e-5
        )


def each_build():
    """Yields each model in three dtypes; all but one, which has experts, are slow."""
    for name in LANGUAGE_MODELS:
        for dtype in ("float32", "float16", "bfloat16"):
            is_first = (name, dtype) == ("Mixtral", "bfloat16")
            yield pytest.param(name, dtype, marks=[] if is_first else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "dtype"), list(each_build()))
def test_a_language_model_builds_with_tensorrt_for_rtx(name, dtype):
    """In one engine, with the same layers as on the reference, whose values are eager's."""
    torchtrt_rtx = pytest.importorskip("torchtrt_rtx")
    if not torchtrt_rtx.VERSIONS:
        pytest.skip("the wheels of TensorRT for RTX are not installed")
    model = MODELS[name].build().to(getattr(torch, dtype))

    with torchtrt.use_tensorrt("rtx"):
        compiled = torchtrt.compile(
            model, prompts(2, 8), require_full_compilation=True, verify="reference"
        )

    assert 1 == len(compiled.report.blocks)
    layers = {row.capability: len(row.nodes) for row in compiled.report.layers}
    assert {"ATTENTION": 2, "ROTARY_EMBEDDING": 4} == layers
    assert compiled.report.verified


class Experts(nn.Module):
    """Products of rows with the matrices of their groups."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4, 5))

    def forward(self, rows, ends):
        """Returns the products."""
        return torch.ops.transformers.grouped_mm_fallback(rows, self.weight, ends)


@pytest.mark.parametrize(
    "ends", [[2, 4, 6], [0, 0, 6], [6, 6, 6], [0, 3, 3], [0, 0, 0], [1, 2, 4]], ids=str
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_are_multiplied_with_the_matrix_of_their_group(ends, dtype):
    """Groups may be empty, and rows behind the last one become 0."""
    model = Experts().eval()
    rows, ends = torch.rand(6, 4), torch.tensor(ends, dtype=dtype)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, (rows, ends), require_full_compilation=True)

    torch.testing.assert_close(compiled(rows, ends), model(rows, ends))


class GroupedProduct(nn.Module):
    """PyTorch's own op, which exports in bfloat16."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 16, 8, dtype=torch.bfloat16))

    def forward(self, rows, ends):
        """Returns the products."""
        return torch._grouped_mm(rows, self.weight, offs=ends)


@pytest.mark.parametrize("ends", [[2, 4, 6], [0, 0, 6], [6, 6, 6], [0, 3, 3]], ids=str)
def test_pytorchs_own_grouped_product(ends):
    """Rows behind the last group are undefined, and not compared."""
    model = GroupedProduct().eval()
    rows, last = torch.rand(6, 16, dtype=torch.bfloat16), ends[-1]
    ends = torch.tensor(ends, dtype=torch.int32)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, (rows, ends), require_full_compilation=True)

    torch.testing.assert_close(compiled(rows, ends)[:last], model(rows, ends)[:last])


def test_a_batch_of_products_has_no_ends():
    """Three dimensions on both sides."""

    class Batch(GroupedProduct):
        def forward(self, rows):
            return torch._grouped_mm(rows, self.weight)

    model, rows = Batch().eval(), torch.rand(3, 8, 16, dtype=torch.bfloat16)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [rows], require_full_compilation=True)

    torch.testing.assert_close(compiled(rows), model(rows))
