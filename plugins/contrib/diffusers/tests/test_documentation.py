"""The code of the page about pipelines runs, where diffusers is installed."""

import re
from pathlib import Path

import pytest

from tests.support.processes import run_python

PAGE = Path(__file__).parents[4] / "docs/diffusion.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.slow  # sixteen seconds; test_pipeline.py compiles such pipelines
def test_the_code_of_the_page_runs(tmp_path):
    """From the first block to the last, as one program, with warnings as errors."""
    program = tmp_path / "page.py"
    program.write_text("\n".join(BLOCKS), encoding="utf-8")

    done = run_python("-W", "error::UserWarning", program, cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    assert "unet (UNet2DConditionModel): 1 program; batch=1 to 4, height=16 to 32" in done.stdout
    assert "height=64 is outside of 16 to 32" in done.stdout
