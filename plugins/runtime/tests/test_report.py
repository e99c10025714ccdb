"""A report is readable wherever it is printed: in a terminal, a file, a notebook; so is the compiled model."""

import inspect
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import TorchOp
from torchtrt_runtime.reports.report import BlockReport, CompilationReport, NarrowedSize
from torchtrt_runtime.reports.text_tables import Listing, as_html


class Parts(nn.Module):
    """Two engines around an op that stays in PyTorch."""

    def forward(self, x, *, scale=2):
        return torch.relu(nn.functional.gelu(torch.sin(x)) * scale)


@pytest.fixture(scope="module")
def compiled():
    """The model, for several sizes."""
    rows = torch.export.Dim("rows", min=2, max=8)
    shapes = {"x": {0: 2 * rows}, "scale": None}
    program = torch.export.export(
        Parts().eval(), (torch.rand(8, 3),), {"scale": 2}, dynamic_shapes=shapes
    )
    return torchtrt.compile(program, min_block_size=1, torch_executed_ops={"aten.gelu"})


def test_a_printed_report_says_everything(compiled, monkeypatch):
    """Engines, what is in PyTorch with its reason and line, sizes and times; first what matters most."""
    # Whatever the folder of this checkout: a path that wraps is cut by the cells beside it.
    monkeypatch.setenv("COLUMNS", str(200 + len(__file__)))

    text = str(compiled.report)

    parts = [
        f"Compiled for {compiled.report.tensorrt}: 2 engines run 3 of 4 nodes, PyTorch 1.",
        "Input x: float32 [4 to 16, 3]",
        "Input scale: always 2",
        "Engines",
        "In PyTorch",
        "Converted",
        "Time",
    ]
    positions = [text.index(part) for part in parts]
    assert sorted(positions) == positions
    in_torch = " ".join(re.sub("[│┃]", " ", text[positions[4] : positions[5]]).split())
    assert "aten.gelu.default 1 torch_executed_ops keeps this op in PyTorch File" in in_torch
    assert "test_report.py" in in_torch
    line = inspect.getsourcelines(Parts.forward)[1] + 1
    assert f", line {line}, in forward" in in_torch
    assert "Take the op out of torch_executed_ops." in in_torch


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_width_breaks_a_name(compiled, monkeypatch, width):
    """Tables become lines of fields where they do not fit."""
    monkeypatch.setenv("COLUMNS", str(width))

    text = str(compiled.report)

    for name in ("aten.gelu.default", "torch_executed_ops", "elementwise:", "TensorRT"):
        assert name in text
    assert all(len(line) <= width for line in text.splitlines() if " " not in line.strip(" │"))


def test_a_report_in_a_file_is_wider_than_a_small_terminal(compiled, monkeypatch, capsys):
    """Most tables fit as tables."""
    monkeypatch.delenv("COLUMNS", raising=False)

    print(compiled.report)

    printed = capsys.readouterr().out
    assert "│ aten.relu.default" in printed
    assert 120 >= max(map(len, printed.splitlines()))


class Cells(HTMLParser):
    """Reads the text of each cell, and checks that tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.cells = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th", "p", "caption"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert tag == self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th", "p", "caption"):
            self.cells[-1] += data


def test_a_notebook_shows_tables(compiled):
    """With what ``print`` shows, and nothing that a name or a reason could break."""
    page = Cells(compiled.report._repr_html_())

    assert [] == page.open
    assert {"Engines", "In PyTorch", "Converted", "Time", "aten.gelu.default", "block_1"} <= {
        *page.cells
    }
    assert page.cells[0].startswith(f"Compiled for {compiled.report.tensorrt}: 2 engines")
    assert ["T", "a<b", "c", "&d", "1,000.5"] == Cells(
        as_html(Listing("T", ("a<b", "c"), [("&d", 1000.5)]))
    ).cells
    assert ["x < y"] == Cells(as_html("x < y")).cells


def test_nodes_with_one_reason_show_their_lines_once_and_not_all(monkeypatch):
    """The first three."""
    monkeypatch.setenv("COLUMNS", "200")
    nodes = [
        TorchOp(f"n{number}", "aten.sin.default", "why", model_line=f"line {number // 2}")
        for number in range(9)
    ]

    text = str(CompilationReport("x", in_torch=[*nodes, TorchOp("c", "aten.cos.default", "why")]))

    assert [True, True, True, False] == [f"line {number}" in text for number in range(4)]
    assert "and 2 more" in text


@pytest.mark.parametrize(
    ("report", "summary"),
    [
        (CompilationReport("x"), "nothing to compute"),
        (CompilationReport("x", blocks=[BlockReport("b", 3, 1, 1)]), "1 engine runs all 3 nodes"),
        (CompilationReport("x", blocks=[BlockReport("b", 3, 1, 1, calls=4)]), "1 engine runs all 12 nodes"),
        (CompilationReport("x", in_torch=[TorchOp("n", "o", "r")]), "no engine; PyTorch runs the only node"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_summary_counts_engines_and_nodes(report, summary):
    """An engine that runs several times counts as one."""
    assert report.summary == summary
    assert f"for x: {summary}." in str(report)


def test_narrowed_sizes_are_in_the_report():
    """They are what a call would be refused for."""
    row = NarrowedSize("x", 0, (1, 8), (2, 8))
    assert "Compiled for 2 to 8" in " ".join(str(CompilationReport("x", narrowed=[row])).split())


def test_a_compiled_model_is_one_line(compiled, tmp_path):
    """Also within another module, and after it was saved and loaded."""
    torchtrt.save(compiled, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")

    expected = (
        f"CompiledModule(2 engines run 3 of 4 nodes, PyTorch 1, for {compiled.report.tensorrt}; "
        "x: float32 [4 to 16, 3]; scale: always 2)"
    )
    assert repr(compiled) == expected
    assert repr(loaded) == expected
    assert f"(0): {expected}\n" in repr(nn.Sequential(compiled))


def test_the_tutorial_shows_the_printed_report(monkeypatch):
    """All but the times."""
    monkeypatch.setenv("COLUMNS", "80")
    page = (Path(__file__).parents[3] / "docs/tutorial-compile.md").read_text(encoding="utf-8")
    layers = torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(
            nn.Sequential(*layers).eval(), [torch.rand(8, 16)], min_block_size=1
        )

    tables = str(compiled.report).partition("Time ")[0]
    shown = "\n".join(line.rstrip() for line in tables.splitlines())

    assert f"```\n{shown}\n...\n```\n" in page
    assert f"```\n{compiled}\n```\n" in page


def test_ranges_of_one_model_are_alternatives():
    """Each profile has its sizes."""
    rows = torchtrt.Input(ranges=[((1, 4), (1, 4), (1, 4)), ((2, 4), (4, 4), (8, 4))])
    compiled = torchtrt.compile(nn.ReLU().eval(), [rows], min_block_size=1)

    assert ["input: float32 [1 or 2 to 8, 4]"] == compiled.report.inputs
