"""The stages of compiling a 12-layer BERT, against exporting it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import torch
from transformers import BertConfig, BertModel

import torchtrt
from tests.benchmarks._measure import Row


class Bert(torch.nn.Module):
    """BERT-base with random weights and a small vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = BertModel(BertConfig(vocab_size=2000))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the last hidden state."""
        hidden: torch.Tensor = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden


def measure() -> Iterator[Row]:
    """Yields the rows of this page of the table."""
    model = Bert().eval()
    ids = torch.randint(0, 2000, (4, 32))
    sizes: Any = {
        0: torch.export.Dim("batch", min=1, max=16),
        1: torch.export.Dim("length", min=2, max=128),
    }
    runs = [
        torchtrt.compile(model, (ids, torch.ones_like(ids)), dynamic_shapes=(sizes, sizes))
        for _ in range(4)
    ]
    stages = {
        stage: statistics.median(run.report.seconds[stage] for run in runs[1:])
        for stage in runs[0].report.seconds
    }
    exporting = stages["exporting"]
    yield Row("12-layer BERT: `torch.export`", f"{exporting * 1e3:.0f} ms")
    for stage in ("lowering", "partitioning", "conversion"):
        yield Row(f"{stage}", f"{stages[stage] * 1e3:.0f} ms ({stages[stage] / exporting:.2f}×)")
    ours = sum(stages[stage] for stage in ("lowering", "partitioning", "conversion"))
    yield Row(
        "lowering + partitioning + conversion",
        f"{ours * 1e3:.0f} ms ({ours / exporting:.2f}× exporting)",
        "< 1×",
    )
    building = stages["building"]
    yield Row("building (reference)", f"{building * 1e3:.0f} ms ({building / exporting:.2f}×)")
