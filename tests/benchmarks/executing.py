"""A call of a compiled model on the reference TensorRT, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import torchtrt
from tests.benchmarks._measure import Row, seconds_in_turn
from torchtrt.demo.models import ResNet18
from torchtrt.demo.sentences import SENTENCES, load_encoder, sizes, tokenize


def measure() -> Iterator[Row]:
    """Yields the rows of this page of the table."""
    encoder, tokenizer = load_encoder()
    batch = torch.export.Dim("batch", min=1, max=16)
    cases: list[tuple[str, torch.nn.Module, tuple[torch.Tensor, ...], Any]] = [
        ("ResNet-18, 4 images", ResNet18().eval(), (torch.rand(4, 3, 224, 224),), ({0: batch},)),
        ("all-MiniLM-L6-v2, 6 sentences", encoder, tokenize(tokenizer, SENTENCES), sizes()),
    ]
    for version in ("8.6.0", "10.16.1", "11.4.0"):
        for title, model, inputs, dynamic_shapes in cases:
            with torchtrt.use_tensorrt(f"reference@{version}"):
                compiled = torchtrt.compile(model, inputs, dynamic_shapes=dynamic_shapes)
            with torch.no_grad():
                times = seconds_in_turn(
                    {
                        "eager": lambda: model(*inputs),  # noqa: B023 (called before the loop goes on)
                        "compiled": lambda: compiled(*inputs),  # noqa: B023
                    },
                    rounds=15,
                    warm_up=3,
                )
            speed = times["eager"] / times["compiled"]
            result = f"{speed:.2f}× eager speed ({times['eager'] * 1e3:.1f} ms)"
            yield Row(f"{title}, reference@{version}", result, "≥ 0.9×")
