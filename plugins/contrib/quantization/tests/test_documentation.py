"""The code of the page about quantized models runs, each block by itself."""

import re
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs/quantized-models.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
LIBRARIES = ("torchao", "modelopt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("position", range(len(BLOCKS)))
def test_a_block_of_the_page_runs(position):
    """Where the library is installed that it is about."""
    code = BLOCKS[position]
    for library in LIBRARIES:
        if library in code:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pytest.importorskip(library)

    exec(compile(code, f"{PAGE.name}, block {position}", "exec"), {"__name__": "page"})
