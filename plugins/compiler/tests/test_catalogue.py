"""A catalogue says which pack to install for an op, and an unusable one costs nothing but a warning."""

import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch

import torchtrt
from torchtrt.errors import CatalogueError, CatalogueWarning, FullCompilationError
from torchtrt.packs import ConverterPack, LoadedPack, PackInfo
from torchtrt_compiler import catalogue
from torchtrt_compiler.catalogue import Catalogue, CataloguedPack, current_catalogue

ACME = {
    "distribution": "torchtrt-converters-acme",
    "summary": "incomplete functions",
    "ops": ["aten.igamma.default", "acme.clip.default"],
}
TEXT = json.dumps({"packs": [ACME]})


class Igamma(torch.nn.Module):
    """An op without a converter."""

    def forward(self, x):
        return torch.igamma(x, x + 1)


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """The user's own folder, empty; the variable is unset."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TORCHTRT_CATALOGUE", raising=False)
    return tmp_path / "data/torchtrt/catalogue"


@pytest.fixture
def file(tmp_path):
    """A file with one pack."""
    path = tmp_path / "acme.json"
    path.write_text(TEXT, encoding="utf-8")
    return path


def wheel(folder, text=TEXT, name="torchtrt_converters_acme"):
    """Returns a wheel with a list of ops."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\n")
        archive.writestr(f"{name}/__init__.py", "raise SystemExit")
        if text is not None:
            archive.writestr(f"{name}/catalogue.json", text)
    return path


def in_torch(**settings):
    """Returns the report's rows of what stays in PyTorch, by op."""
    report = torchtrt.explain(Igamma().eval(), [torch.rand(3)], **settings)
    return {entry.op: entry for entry in report.in_torch}, str(report)


def test_a_report_and_the_error_of_full_compilation_name_a_pack(file, monkeypatch):
    """In the table and as data; ops that TensorRT could run have none."""
    monkeypatch.setenv("TORCHTRT_CATALOGUE", f" {file} ,")

    rows, text = in_torch(min_block_size=9)

    assert ("torchtrt-converters-acme",) == rows["aten.igamma.default"].available
    assert () == rows["aten.add.Tensor"].available
    assert "Install torchtrt-converters-acme." in text
    with pytest.raises(FullCompilationError) as caught:
        in_torch(require_full_compilation=True)
    assert "  aten.igamma.default: install torchtrt-converters-acme" in str(caught.value).split(
        "\n"
    )


def test_nothing_is_named_for_an_op_that_the_settings_exclude(file, monkeypatch):
    """No pack would change that."""
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(file))

    rows, _ = in_torch(torch_executed_ops={"aten.igamma"})

    assert () == rows["aten.igamma.default"].available


def test_an_installed_pack_is_not_named(tmp_path, monkeypatch):
    """It did not convert the node, and its reason is in the report."""
    entry = {"distribution": "torchtrt-converters-aten-core", "ops": ["aten.igamma.default"]}
    (tmp_path / "core.json").write_text(json.dumps({"packs": [entry]}))
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(tmp_path / "core.json"))

    rows, _ = in_torch()

    assert () == rows["aten.igamma.default"].available


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "no catalogue"),
        ('{"packs": [{}]}', "'ops'"),
        ('{"packs": [{"ops": ["a b"]}]}', "names of ops"),
        ('{"packs": [{"ops": [], "distribution": "requests"}]}', "no distribution of a pack"),
        ('{"packs": [{"ops": [], "distribution": 3}]}', "no catalogue"),
        ('{"packs": [{"ops": [], "summary": "a\\nb"}]}', "one line"),
        (None, "cannot be read"),
    ],
)
def test_an_unusable_source_is_a_warning_and_the_others_remain(text, words, tmp_path, monkeypatch):
    """The warning names the source."""
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(path))

    with pytest.warns(CatalogueWarning, match=f"bad.json.*{words}.*Correct TORCHTRT_CATALOGUE"):
        catalogue = current_catalogue()

    assert catalogue.providers("torchvision.nms.default")


def test_a_wheel_is_added_to_the_own_catalogue_and_removed(own, tmp_path):
    """Its list is read, and its code is not."""
    added = catalogue.add(wheel(tmp_path))

    assert ["torchtrt-converters-acme"] == [pack.distribution for pack in added.packs]
    assert current_catalogue().providers("acme.clip.default") == added.packs
    assert [own / "torchtrt-converters-acme.json"] == list(own.iterdir())
    assert "torchtrt-converters-acme" == catalogue.remove("Acme")
    assert not current_catalogue().providers("acme.clip.default")
    with pytest.raises(CatalogueError, match="cannot be removed from your catalogue"):
        catalogue.remove("acme")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": None}, "has no list of its ops, torchtrt_converters_acme/catalogue.json"),
        ({"name": "requests"}, "'requests' is no distribution of a pack"),
        ({"name": "torchtrt_converters_other"}, "lists other packs than torchtrt-converters-other"),
        ({"text": "{}"}, "'packs'"),
    ],
)
def test_a_wheel_without_a_list_of_its_own_is_refused(options, words, own, tmp_path):
    """Nothing is added."""
    path = wheel(tmp_path, **options)

    with pytest.raises(CatalogueError, match=words) as caught:
        catalogue.add(path)

    assert str(path) in str(caught.value)
    assert not own.exists()


def test_a_zip_file_that_is_no_wheel_is_refused(tmp_path):
    """It has no metadata."""
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("catalogue.json", TEXT)

    with pytest.raises(CatalogueError, match="this is no wheel"):
        Catalogue.read(tmp_path / "other.zip")


@pytest.fixture
def server():
    """A server with the catalogue: its address, and the paths that were asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200 if self.path == "/acme.json" else 404)
            self.end_headers()
            self.wfile.write(TEXT.encode())

        def log_message(self, *_):
            """Prints nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


def test_a_url_is_read_once_in_a_process(server, monkeypatch):
    """And only where it is written."""
    address, asked = server
    monkeypatch.setenv("TORCHTRT_CATALOGUE", f"{address}/acme.json")
    assert not asked

    for _ in range(2):
        rows, _ = in_torch()

    assert ("torchtrt-converters-acme",) == rows["aten.igamma.default"].available
    assert ["/acme.json"] == asked
    with pytest.raises(CatalogueError, match="404"):
        Catalogue.read(f"{address}/missing.json")


def test_a_model_that_is_compiled_whole_reads_no_catalogue(server, monkeypatch):
    """So that it needs no network."""
    address, asked = server
    monkeypatch.setenv("TORCHTRT_CATALOGUE", f"{address}/missing.json")

    torchtrt.explain(torch.nn.ReLU().eval(), [torch.rand(3)])

    assert [] == asked


def test_the_last_source_of_a_pack_counts(file, tmp_path, monkeypatch):
    """The variable comes after the own folder."""
    catalogue.add(file)
    later = {**ACME, "ops": ["aten.igamma.default"]}
    (tmp_path / "later.json").write_text(json.dumps({"packs": [later]}))
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(tmp_path / "later.json"))

    (pack,) = current_catalogue().providers("aten.igamma.default")

    assert ("aten.igamma.default",) == pack.ops


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("igamma", ("aten.igamma.default",)),
        ("ACME::clip", ("acme.clip.default",)),
        ("incomplete", ()),
        ("converters-acme", ()),
    ],
)
def test_a_search_finds_names_summaries_and_ops(words, expected):
    """Of the ops, those with the text."""
    (pack,) = Catalogue.from_json(TEXT).search(words).packs

    assert expected == pack.ops
    assert not Catalogue.from_json(TEXT).search("nothing").packs


def test_the_entry_of_a_pack_has_converters_decompositions_and_the_ops_of_passes():
    """Also those that this PyTorch lacks."""
    pack = ConverterPack("acme", summary="for a test")
    pack.add("acme::clip", lambda ctx, x: x)
    pack.decomposition("aten.silu")(lambda x: x)
    pack.lowering_pass(ops=["acme.fused"])(lambda graph_module, settings: None)

    entry = CataloguedPack.of(LoadedPack(PackInfo("acme"), pack))

    assert ("acme.clip.default", "acme.fused.default", "aten.silu.default") == entry.ops
    assert ("torchtrt-converters-acme", "for a test") == (entry.distribution, entry.summary)
    assert Catalogue((entry,)) == Catalogue.from_json(Catalogue((entry,)).to_json())
