"""Every case, architecture and sample of PyTorch builds with TensorRT for RTX as with the reference.

Slow: these are thousands of builds, up to hours on two cores. The outcomes are kept in ``.cache/rtx-builds`` for the
code that they are of, so that an interrupted run goes on where it stopped. pytest-xdist runs the tests side by side.
"""

import hashlib
import re

import pytest
import torch

import torchtrt_rtx
from tools.import_graph import ROOT
from tools.rtx_builds import DTYPES, PARTS, SIZES, disagrees, latest, run
from torchtrt_testing.building import BUILT

pytestmark = [
    pytest.mark.slow,  # it builds what test_builds.py samples
    pytest.mark.skipif(
        not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
    ),
    pytest.mark.filterwarnings("ignore"),  # of the libraries that the cases import
]
SECONDS = 60
"""The time limit of a build."""
EXPECTED = {
    r"outputs whose sizes depend on data": "TensorRT for RTX has no NonZero layer",
    r"timed out after": "its builder takes longer than the time limit",
}
"""For a pattern of outcomes in which the two differ: the reason, which docs/rtx.md gives too."""

NOT_EXPORTED = r"float16 varying wav2vec2$"
"""Architectures that torch.export does not trace: it cannot prove a guard on the length, in half precision alone."""


def code():
    """Returns a text that changes with the code of the project, PyTorch and TensorRT for RTX."""
    digest = hashlib.sha256(f"{torch.__version__} {torchtrt_rtx.VERSIONS}".encode())
    for folder in ("core", "plugins", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", PARTS)
def test_everything_builds_as_with_the_reference(part, dtype, size):
    """Every tensor has the reference's dtype and shape, and nothing else is refused than the page says."""
    items = [
        f"{part}:{name}" for name in PARTS[part].names() if name.startswith(f"{dtype} {size} ")
    ]
    if not items:
        pytest.skip("samples have fixed sizes")
    out = ROOT / ".cache" / "rtx-builds" / code() / f"{part}-{dtype}-{size}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)

    run(out, items, jobs=1, seconds=SECONDS)

    rows = latest(out)
    assert {row["item"] for row in rows} == set(items)
    assert any(row["outcome"] == BUILT for row in rows)
    if part == "architectures":
        left = [row for row in rows if row["outcome"] != BUILT]
        assert [] == [row for row in left if not re.search(NOT_EXPORTED, row["item"])]
    differing = [row for row in rows if disagrees(row)]
    unexpected = [row for row in differing if not re.search("|".join(EXPECTED), row["outcome"])]
    assert [] == [(row["item"], row["outcome"], row["reference"]) for row in unexpected]
    compared = (row for row in rows if row not in differing)
    assert [] == [(row["item"], row["differences"]) for row in compared if row.get("differences")]
