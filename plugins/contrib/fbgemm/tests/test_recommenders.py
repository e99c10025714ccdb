"""Models that read histories of several lengths, as recommenders do."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.models import import_alone
from torchtrt.testing import run_compiled, tensorrts

try:
    import_alone("fbgemm_gpu")
except (ImportError, OSError) as error:  # its libraries are for one version of PyTorch
    pytest.skip(f"FBGEMM cannot be imported: {error}", allow_module_level=True)

fbgemm = torch.ops.fbgemm


class Recommender(nn.Module):
    """Attention over the items that each user has seen."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(1000, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.score = nn.Linear(16, 1)

    def forward(self, lengths, items):
        """Returns a score for each user."""
        offsets = fbgemm.asynchronous_complete_cumsum(lengths)
        seen = fbgemm.jagged_to_padded_dense(self.items(items), [offsets], [8], 0.0)
        is_padding = torch.arange(8)[None] >= lengths[:, None].clamp(min=1)
        mixed, _ = self.attention(seen, seen, seen, key_padding_mask=is_padding, need_weights=False)
        return self.score(mixed.mean(1)).sigmoid()


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_a_recommender_is_one_engine_for_histories_of_all_lengths(tensorrt):
    """Also where no user has seen an item, and where a history is longer than the model reads."""
    model = Recommender().eval()
    users = torchtrt.Input(min_shape=(1,), opt_shape=(4,), max_shape=(16,), dtype=torch.int64)
    items = torchtrt.Input(min_shape=(0,), opt_shape=(20,), max_shape=(128,), dtype=torch.int64)

    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, [users, items], require_full_compilation=True)

        assert 1 == len(compiled.report.blocks)
        for counts in ([3], [0, 0, 0], [0, 11, 2, 0, 8], [8] * 16):
            lengths, seen = torch.tensor(counts), torch.randint(0, 1000, (sum(counts),))
            result = run_compiled(compiled, lengths, seen)
            torch.testing.assert_close(result, model(lengths, seen))
