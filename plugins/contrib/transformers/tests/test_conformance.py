"""The pack keeps what every pack should, and its op is attention."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from tests.support.processes import run_python
from torchtrt.testing import PackConformance, cases_of
from torchtrt_converters_transformers.decompositions.attention import cached_attention


class TestTransformers(PackConformance):
    """What every pack should keep."""

    pack = "transformers"
    without_case = {
        "transformers.grouped_mm_fallback.default": "test_current_layers.py: its groups must be in order"
    }
    cases = cases_of("transformers")


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_op_is_attention_over_cached_and_new_keys(heads):
    """PyTorch's own attention over the keys that may be read, one after the other, is the same."""
    torch.manual_seed(heads)
    query = torch.randn(2, 4, 3, 8)
    key, value = torch.randn(2, heads, 3, 8), torch.randn(2, heads, 3, 8)
    past_key, past_value = torch.randn(2, heads, 7, 8), torch.randn(2, heads, 7, 8)
    mask = torch.ones(3, 3).tril().bool().expand(2, 1, 3, 3)
    past_mask = torch.tensor(
        [[False, True, True, True, False, False, False], [True] * 5 + [False] * 2]
    )
    past_mask = past_mask[:, None, None]
    everything = torch.cat([past_mask.expand(-1, -1, 3, -1), mask], -1)

    actual = torch.ops.torchtrt_transformers.cached_attention(
        query, key, value, mask, past_key, past_value, past_mask, 0.3, None
    )

    keys, values = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    expected = F.scaled_dot_product_attention(
        query, keys, values, everything, scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(actual, expected)


def test_capped_scores_are_bounded_before_the_softmax():
    """A cap of nearly nothing makes all weights equal."""
    query, key = 10 * torch.randn(1, 2, 3, 8), 10 * torch.randn(1, 2, 3, 8)
    value, mask = torch.randn(1, 2, 3, 8), torch.ones(1, 1, 3, 3, dtype=torch.bool)

    actual = torch.ops.torchtrt_transformers.cached_attention(
        query, key, value, mask, None, None, None, 1.0, 1e-6
    )

    torch.testing.assert_close(actual, value.mean(2, keepdim=True).expand(-1, -1, 3, -1))


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_nothing_that_is_float32_is_reshaped(softcap):
    """Between products and softmax: TensorRT 8.6 finds no float16 kernels for that, and makes many engines of one."""
    half = {"dtype": torch.float16}
    query, mask = torch.randn(1, 4, 3, 8, **half), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    new, cached = torch.randn(2, 1, 2, 3, 8, **half), torch.randn(2, 1, 2, 7, 8, **half)
    past_mask = torch.ones(1, 1, 1, 7, dtype=torch.bool)

    def attention(*tensors):
        return cached_attention(*tensors, 0.3, softcap)

    graph = make_fx(attention, tracing_mode="fake")(query, *new, mask, *cached, past_mask).graph

    reshaping = [node for node in graph.nodes if "view" in str(node.target)]
    dtypes = {node.args[0].meta["val"].dtype for node in reshaping}
    assert dtypes == {torch.float16}
    assert torch.float32 in {node.meta["val"].dtype for node in graph.nodes if "val" in node.meta}


def test_the_pack_is_in_use_where_transformers_is_not_installed():
    """Only compiling for generation needs transformers, and its error says so."""
    program = (
        "import sys; sys.modules['transformers'] = None\n"
        "import torchtrt, torchtrt_converters_transformers as pack\n"
        "from torchtrt.packs import problems\n"
        "assert not problems(), problems()\n"
        "assert 'compile_for_generation' in dir(pack)\n"
        "try:\n"
        "    pack.compile_for_generation\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )

    done = run_python("-W", "error", "-c", program)

    assert 0 == done.returncode, done.stderr
    assert "transformers" in done.stdout
