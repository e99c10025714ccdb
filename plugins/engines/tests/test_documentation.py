"""What the pages about saving and caching show works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import torchtrt

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("save-and-load.md", "cache.md")


class MyModel(nn.Module):
    """A model as the pages speak of it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns features."""
        return torch.relu(self.convolution(images)).mean((2, 3)) * 2 + 1


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """From top to bottom, in one session, with the reference TensorRT."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHTRT_CACHE", str(tmp_path / "cache"))
    names = {"MyModel": MyModel, "train_further": lambda model: MyModel().eval()}
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S))

    with torchtrt.use_tensorrt("reference"):
        exec(compile(code, page, "exec"), names)
