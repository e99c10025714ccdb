"""PEFT's adapters, which compute weights when these are read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.later import later, needs
from tests.test_computed_weights import X, check, perturbed

peft = later("peft")
pytestmark = pytest.mark.filterwarnings("ignore")


class Adapted(nn.Module):
    """Layers of several kinds, which get adapters."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        """``(n, length, 8)`` to the same."""
        x = torch.relu(self.linear(x))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.recurrent(self.norm(x))[0]


ADAPTERS = {
    "LoRA": ("LoraConfig", {"target_modules": ["linear"], "r": 4}),
    "DoRA": ("LoraConfig", {"target_modules": ["linear"], "r": 4, "use_dora": True}),
    "attention": ("LoraConfig", {"target_modules": ["attention"], "r": 4}),
    "parameter": (
        "LoraConfig",
        {"target_modules": [], "target_parameters": ["recurrent.weight_hh_l0"], "r": 4},
    ),
    "OFT": ("OFTConfig", {"target_modules": ["linear"], "oft_block_size": 4, "r": 0}),
    "HRA": ("HRAConfig", {"target_modules": ["linear"], "r": 4}),
    "SHiRA": ("ShiraConfig", {"target_modules": ["linear"], "r": 2}),
    "FourierFT": ("FourierFTConfig", {"target_modules": ["linear"], "n_frequency": 10}),
    "layer-norm": ("LNTuningConfig", {"target_modules": ["norm"]}),
}
"""A configuration of PEFT for a name. Some compute with ``weight.data``, and some replace weights for a call."""


@needs("peft")
@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_are_computed_as_in_eager_pytorch(name, version):
    """And the model can be used afterwards."""
    torch.manual_seed(0)
    class_name, options = ADAPTERS[name]
    model = peft.get_peft_model(Adapted(), getattr(peft, class_name)(**options))
    model = perturbed(model)
    with model.disable_adapter():
        plain = model(X)
    assert not torch.allclose(plain, model(X), rtol=1e-3, atol=1e-3)

    check(model, X, is_kept=name != "attention")  # PEFT makes parameters when these are read
