"""The time to decide which sizes a program takes, against the time of exporting it.

*Before* is the share at version 8a1ff8db, which exported a model again for each size of 0 and 1, on two quiet cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    SegformerConfig,
    SegformerModel,
    T5Config,
    T5ForConditionalGeneration,
)

import torchtrt
from tests.benchmarks._measure import Row
from torchtrt_converters_transformers import compile_for_generation

IDS = torchtrt.Input(min_shape=(1, 1), opt_shape=(2, 16), max_shape=(8, 64), dtype=torch.int64)
TARGET = "≤ 0.25×"


class Hidden(torch.nn.Module):
    """The last hidden state of a language model.

    Args:
        model: The model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the hidden state of each token."""
        options = {"use_cache": False} if isinstance(self.model, GPT2Model) else {}
        hidden: torch.Tensor = self.model(ids, **options).last_hidden_state
        return hidden


def bert() -> Any:
    """Returns a compiled BERT with 12 layers."""
    config = BertConfig(
        vocab_size=1000, hidden_size=128, num_attention_heads=4, intermediate_size=256
    )
    return torchtrt.compile(Hidden(BertModel(config)).eval(), [IDS])


def gpt2() -> Any:
    """Returns a compiled GPT-2 with 12 layers."""
    config = GPT2Config(vocab_size=1000, n_embd=128, n_head=4, n_layer=12)
    return torchtrt.compile(Hidden(GPT2Model(config)).eval(), [IDS])


def llama() -> Any:
    """Returns a Llama with two layers, compiled for generation."""
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=100,
    )  # fmt: skip
    return compile_for_generation(LlamaForCausalLM(config).eval(), max_batch_size=2, max_length=64)


def t5() -> Any:
    """Returns a T5 with two layers, compiled for generation."""
    config = T5Config(
        num_layers=2, d_model=64, d_ff=128, num_heads=4, d_kv=16, vocab_size=100,
        decoder_start_token_id=0,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    return compile_for_generation(model, max_batch_size=2, max_length=64)


def segformer() -> Any:
    """Returns a compiled SegFormer of the smallest kind."""
    images = torchtrt.Input(
        min_shape=(1, 3, 32, 32), opt_shape=(1, 3, 128, 128), max_shape=(2, 3, 256, 256)
    )
    return torchtrt.compile(SegformerModel(SegformerConfig()).eval(), [images])


MODELS: tuple[tuple[str, Callable[[], Any], str], ...] = (
    ("BERT, 12 layers, batch and length dynamic", bert, "1.45×"),
    ("GPT-2, 12 layers, batch and length dynamic", gpt2, "2.7×"),
    ("generation with a Llama of two layers", llama, "2.3×"),
    ("generation with a T5 of two layers", t5, "138×"),
    ("SegFormer, tiny, height and width dynamic", segformer, "most of 24 s"),
)


def reports(compiled: Any) -> list[Any]:
    """Returns the reports of the programs of a compiled model."""
    if hasattr(compiled, "report"):
        return [compiled.report]
    parts = (getattr(compiled, name, None) for name in dir(compiled) if not name.startswith("_"))
    return [part.report for part in parts if hasattr(part, "report")]


def measure() -> Iterator[Row]:
    """Yields the rows of this page of the table."""
    for name, compile_model, before in MODELS:
        runs = []
        for _ in range(4):
            start = time.perf_counter()
            parts = reports(compile_model())
            whole = time.perf_counter() - start
            exporting, sizes = (
                sum(part.seconds[stage] for part in parts) for stage in ("exporting", "sizes")
            )
            runs.append((exporting, sizes / exporting, whole / exporting))
        exporting, share, whole = (statistics.median(row) for row in zip(*runs[1:], strict=True))
        yield Row(
            name,
            f"{share:.2f}× of {exporting:.1f} s exporting (before: {before}); all stages {whole:.1f}×",
            TARGET,
        )
