"""``torchtrt explain MODEL.pt2 --html FILE``: what is on the page, and that a browser shows it."""

from __future__ import annotations

import json
import operator
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch.fx import Graph, GraphModule

import torchtrt
from torchtrt.errors import TorchOp
from torchtrt.registry.candidate import RejectionCode
from torchtrt_cli import main
from torchtrt_cli.page import fill, page_data
from torchtrt_runtime.reports.advice import BY_CODE, advice
from torchtrt_runtime.reports.report import BlockReport, CompilationReport

ROOT = Path(__file__).parents[3]
MARKUP = '<b onclick="x">\'&amp;&\u2028\\</b></script> {{data}} {{title}} <!--<script>'
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


class Model(torch.nn.Module):
    """Two engines, and between them what stays in PyTorch: an op without a converter, and float64."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.linear(x)).tanh() * 2 + 1
        first, second = x.split(3, dim=1)
        x = torch.relu(torch.cat((second, first), dim=1)) * 3
        x = torch.linalg.svdvals(x).double().float()
        return torch.sigmoid(torch.relu(x) * 2 + 1).exp() - 4


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The model, saved."""
    path = tmp_path_factory.mktemp("model") / "model.pt2"
    torch.export.save(torch.export.export(Model().eval(), (torch.rand(4, 6),)), path)
    return path


@pytest.fixture(scope="module")
def page(program):
    """Its page, as the command writes it."""
    path = program.with_suffix(".html")
    assert 0 == main(["explain", str(program), "--html", str(path)])
    return path


class Elements(HTMLParser):
    """The elements of a page: tag and attributes of each, and the text right after it begins."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])

    def handle_data(self, text):
        if self.elements:
            self.elements[-1][2] += text

    def of(self, tag):
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]


def data_of(text):
    """Returns the data in a page, read as a browser reads it."""
    (data,) = (text for attributes, text in Elements(text).of("script") if "id" in attributes)
    return json.loads(data)


def graph_of(count):
    """Returns a partitioned graph of so many nodes in one block, and one that stays in PyTorch, with its report."""
    graph, outer = Graph(), Graph()
    value = torch.empty(2, 3)
    node = graph.placeholder("x")
    for _ in range(count - 1):
        node = graph.call_function(torch.ops.aten.relu.default, (node,))
        node.meta |= {
            "val": value,
            "stack_trace": 'File "model.py", line 7, in forward\n  x.relu()',
        }
    graph.output((node,))
    call = outer.call_module("block_0", (outer.placeholder("x"),))
    pick = outer.call_function(operator.getitem, (call, 0))
    last = outer.call_function(torch.ops.aten.gelu.default, (pick,))
    last.meta["val"] = value
    outer.output((last,))
    root = torch.nn.Module()
    root.block_0 = GraphModule(root, graph)
    report = CompilationReport("reference@11.4.0", blocks=[BlockReport("block_0", count - 1)])
    report.in_torch = [TorchOp(last.name, "aten.gelu.default", MARKUP)]
    return SimpleNamespace(graph_module=GraphModule(root, outer), report=report)


@pytest.mark.parametrize("text", [MARKUP, "half of a character: \ud83d", "日本語"])
def test_no_name_is_markup(text):
    """Titles and data hold what was given, and the page has the elements that it has anyway."""
    filled = fill(text, {text: [text]})
    plain = [tag for tag, *_ in Elements(fill("plain", {})).elements]
    elements = Elements(filled)

    filled.encode()
    assert plain == [tag for tag, *_ in elements.elements]
    assert {text: [text]} == data_of(filled)
    ((_, heading),) = elements.of("h1")
    assert text.replace("\ud83d", "?") == heading.rstrip("\n")


def test_the_page_asks_for_nothing_over_the_network(page):
    """Neither scripts nor styles nor fonts, and the browser would refuse."""
    text = page.read_text(encoding="utf-8")
    markup = re.sub(
        r'(<script type="application/json".*?>).*?(</script>)', r"\1\2", text, flags=re.S
    )

    assert not re.search(r"https?:|\bsrc=|url\(|@import|\bfetch\(|import\(", markup)
    assert "Content-Security-Policy\" content=\"default-src 'none';" in markup
    assert "link" not in {tag for tag, *_ in Elements(markup).elements}


def test_every_node_is_on_the_page(program, page):
    """In the order in which they run, with op, value, line and converters; and all that ``--json`` contains."""
    compiled = torchtrt.compile(torch.export.load(program), dryrun=True)
    blocks = {name: getattr(compiled.graph_module, name) for name in ("block_0", "block_1")}
    data = data_of(page.read_text(encoding="utf-8"))
    nodes = data["nodes"]

    for name, block in blocks.items():
        calls = [node.name for node in block.graph.nodes if node.op == "call_function"]
        assert calls == [node["name"] for node in nodes if node["where"] == name]
    in_torch = [node for node in nodes if "reason" in node]
    assert [(entry.node, entry.reason) for entry in compiled.report.in_torch] == [
        (node["name"], node["reason"]) for node in in_torch
    ]
    assert len(in_torch) == sum(group["count"] for group in data["groups"]) >= 3
    assert all(group["advice"] for group in data["groups"])
    gelu = next(node for node in nodes if node["op"] == "aten.gelu.default")
    assert ("aten_core", "float32[4, 6]") == (gelu["pack"], gelu["value"])
    assert "torch.nn.functional.gelu(self.linear(x))" in gelu["line"]
    chosen = [
        resolution
        for resolution in data["resolutions"][gelu["resolution"]]
        if resolution["outcome"] == "takes it"
    ]
    assert ["aten_core"] == [resolution["pack"] for resolution in chosen]
    assert set(compiled.report.to_json()) <= set(data)
    counts = {pack["pack"]: pack["nodes"] for pack in data["packs"]}
    assert sum(counts.values()) == sum("pack" in node for node in nodes)
    coverage = {resolution["pack"]: resolution for resolution in data["coverage"]}
    core = coverage["aten_core"]
    assert {"nn.functional.gelu", "tanh"} <= set(core["ops"])
    assert "linalg.svdvals" in coverage["linalg"]["ops"]
    assert len(core["versions"]) == len(core["ops"]["tanh"]["float16"])


def test_the_layers_of_current_tensorrt_are_drawn(tmp_path):
    """With the nodes that become them, and why others do not."""
    model = torch.nn.GroupNorm(2, 4).eval()
    path, page = tmp_path / "model.pt2", tmp_path / "model.html"
    torch.export.save(torch.export.export(model, (torch.rand(2, 4, 3),)), path)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        assert 0 == main(["explain", str(path), "--html", str(page), "--set", "min_block_size=1"])

    text = page.read_text(encoding="utf-8")
    (use,) = data_of(text)["layers"]
    assert ("NORMALIZATION_V2", ["group_norm"]) == (use["capability"], use["nodes"])
    assert "data.layers.map" in text
    assert "showLayers();" in text
    assert "uses" in {attributes.get("id") for attributes, _ in Elements(text).of("div")}


def test_nodes_of_inner_graphs_are_on_the_page():
    """The branches of a condition, with the node that they are inside of."""

    class Branches(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,))

    exported = torch.export.export(Branches(), (torch.rand(3),))
    data = page_data(torchtrt.compile(exported, dryrun=True, min_block_size=1), "model")

    inner = {node["op"]: node["inside"] for node in data["nodes"] if "inside" in node}
    assert {"aten.sin.default", "aten.cos.default"} <= set(inner)
    assert set(inner.values()) <= {node["name"] for node in data["nodes"]}


def test_json_and_a_page_at_once(program, tmp_path, capsys):
    """What is printed is JSON alone."""
    path = tmp_path / "model.html"

    assert 0 == main(["explain", str(program), "--json", "--html", str(path)])
    report = json.loads(capsys.readouterr().out)

    assert report["in_torch"] == data_of(path.read_text(encoding="utf-8"))["in_torch"]


def test_the_command_says_what_it_wrote(program, tmp_path, capsys):
    """A second time it overwrites."""
    path = tmp_path / "model.html"
    for _ in range(2):
        assert 0 == main(["explain", str(program), "--html", str(path)])
        assert re.fullmatch(
            rf"Wrote {re.escape(str(path))}: \d+ nodes in engines, \d+ in PyTorch\.\n",
            capsys.readouterr().out,
        )


@pytest.mark.parametrize("subject", ["op", "folder"])
def test_what_has_no_page_is_status_2(program, tmp_path, capsys, subject):
    """An op, and a file that cannot be written."""
    what = "aten.gelu" if subject == "op" else str(program)
    path = tmp_path / ("no/such/folder.html" if subject == "folder" else "op.html")

    assert 2 == main(["explain", what, "--html", str(path)])

    assert (
        "a file that ends in .pt2" if subject == "op" else "cannot be written"
    ) in capsys.readouterr().err
    assert not path.exists()


def test_the_page_never_overwrites_the_model(program, capsys):
    """Whichever way its path is written."""
    before = program.read_bytes()

    assert 2 == main(["explain", str(program), "--html", f"{program.parent}/./{program.name}"])

    assert "would overwrite the model" in capsys.readouterr().err
    assert before == program.read_bytes()


def test_every_code_has_its_advice_and_its_line_in_the_docs():
    """A new kind of reason cannot be forgotten."""
    codes = set(get_args(RejectionCode))
    page = (ROOT / "docs/registry.md").read_text(encoding="utf-8")
    table = page.partition("| code | reason |")[2].partition("\n\n")[0]

    assert codes == set(BY_CODE)
    assert codes == set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("block-too-small",), "smaller min_block_size"),
        (("write", "declined"), "Nothing"),
        (("declined", "dynamic-shapes"), "assume_dynamic_shape_support"),
        (("declined", "not-loaded"), "torchtrt doctor"),
        (("declined", "decomposition"), "as the reason says"),
        (("no-such-preference",), "`torchtrt converters vision.op.default`"),
        ((), "as the reason says"),
    ],
)
def test_of_several_reasons_the_one_that_can_be_acted_on_counts(codes, expected):
    """Whatever their order is."""
    for order in (codes, codes[::-1]):
        assert expected in advice(TorchOp("node", "vision.op.default", "why", order))


def test_a_packs_own_advice_comes_first():
    """Its authors know best."""
    entry = TorchOp("node", "vision.op.default", "why", ("declined",), ("Pass sizes of 2.",))

    assert "Pass sizes of 2." == advice(entry)


def test_the_text_says_what_to_do(program, capsys):
    """Equal reasons together."""
    assert 0 == main(["explain", str(program)])

    assert "what to do" in capsys.readouterr().out


@pytest.fixture
def browse(tmp_path):
    """Opens a page in a browser without a window: what it shows in the end, as rows with their attributes."""
    if not CHROMIUM:
        pytest.skip("no Chromium is on PATH")

    def open_page(path, filter=""):
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
            "--disable-component-update --disable-sync --virtual-time-budget=5000 --dump-dom"
        )
        command = [
            CHROMIUM,
            *flags.split(),
            f"--user-data-dir={tmp_path}/browser",
            path.as_uri() + filter,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return Elements(done.stdout)

    return open_page


def shown(elements, data):
    """Returns the nodes whose rows are not hidden."""
    return [
        data["nodes"][int(row["data-node"])]
        for row, _ in elements.of("details")
        if "hidden" not in row
    ]


def test_a_browser_shows_a_small_model(page, browse):
    """All rows, and those that the address asks for."""
    data = data_of(page.read_text(encoding="utf-8"))

    everything = browse(page)
    assert data["nodes"] == shown(everything, data)
    assert str(len(data["nodes"])) == everything.of("body")[0][0]["data-shown"]
    rows = shown(browse(page, "#q=gelu"), data)
    assert 0 < len(rows) < len(data["nodes"])
    assert all("gelu" in json.dumps(node) for node in rows)
    in_torch = shown(browse(page, "#torch=1"), data)
    assert [entry["node"] for entry in data["in_torch"]] == [node["name"] for node in in_torch]


def test_a_browser_shows_ten_thousand_nodes(tmp_path, browse):
    """Every one has a row within the time that is given, markup in names stays text."""
    path = tmp_path / "large.html"
    data = page_data(graph_of(10_000), MARKUP)
    data["nodes"][5]["value"] = data["inputs"][0]["name"] = MARKUP
    path.write_text(fill(MARKUP, data), encoding="utf-8")

    elements = browse(path, "#q=gelu")

    assert 10_000 == len(data["nodes"]) == len(elements.of("details"))
    assert ["aten.gelu.default"] == [node["op"] for node in shown(elements, data)]
    assert not elements.of("b")
    assert not any("onclick" in attributes for _, attributes, _ in elements.elements)


def test_a_browser_opens_a_row(tmp_path, browse):
    """What is known of the node comes with the click, markup in it stays text."""
    path = tmp_path / "opened.html"
    data = page_data(graph_of(3), "model")
    data["nodes"][0] |= {
        "line": MARKUP,
        "decomposed_from": MARKUP,
        "inside": MARKUP,
        "resolution": 0,
    }
    outcome = {"pack": "vision", "origin": MARKUP, "converter": "vision:relu", "outcome": MARKUP}
    data["resolutions"] = [[outcome, {**outcome, "pack": ""}]]
    click = "<script>for (const row of rows) row.querySelector('summary').click();</script>"
    path.write_text(fill("model", data) + click, encoding="utf-8")

    elements = browse(path)

    texts = [text for tag in ("dd", "li", "strong", "code") for _, text in elements.of(tag)]
    assert {MARKUP, f"vision ({MARKUP}) ", f"vision:relu: {MARKUP}"} <= set(texts)
    assert len(data["nodes"]) == sum("open" in row for row, _ in elements.of("details"))
    assert not elements.of("b")
