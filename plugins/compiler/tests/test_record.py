"""A record of a compilation: graphs, decisions, and layers in a folder."""

import itertools
import json
import re
import threading

import pytest
import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import SettingsError, UnwritableFileError
from torchtrt_testing.faults import watched_tensorrt

X = torch.rand(3, 4)


def recorded(folder, function, *inputs, **settings):
    """Returns the lines of the log of a compilation, without their times."""
    with torchtrt.record_compilation(folder):
        torchtrt.compile(Function(function).eval(), inputs or [X], min_block_size=1, **settings)
    return lines_in(folder)


def lines_in(folder):
    lines = (folder / "compilation.log").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r" *\d+\.\d{3}  \S", line) for line in lines)
    return [line[11:] for line in lines]


def of_kind(lines, kind):
    return [line[15:] for line in lines if line[:15].strip() == kind]


def test_each_decision_is_a_line(tmp_path):
    """Lookups, rejections with their pack, decompositions, the partition, and builds with seconds."""
    lines = recorded(
        tmp_path,
        lambda x: (torch.nn.functional.silu(x), torch.igamma(x, x), x.double().relu()),
        torch_enabled_decompositions={"aten.silu"},
    )

    assert of_kind(lines, "compiles for") == ["reference@11.4.0"]
    assert any("silu (aten.silu.default): aten_core" in line for line in of_kind(lines, "lookup"))
    assert any(line.startswith("silu into ") for line in of_kind(lines, "decomposed"))
    assert any("has no float64" in line for line in of_kind(lines, "rejected"))
    assert any("igamma (aten.igamma.default): none" in line for line in of_kind(lines, "lookup"))
    assert any("igamma (aten.igamma.default)" in line for line in of_kind(lines, "in PyTorch"))
    (built,) = of_kind(lines, "built")
    assert re.fullmatch(r"block_0 in \d+\.\d{3} s: nodes=\d+ layers=\d+ bytes=\d+", built)
    assert lines[-1].startswith("ends")


def test_a_rejection_has_the_pack_the_reason_and_the_code(tmp_path):
    """As the report of a node has them."""
    lines = recorded(
        tmp_path, lambda x: torch.nn.functional.gelu(x), torch_executed_ops={"aten.gelu"}
    )

    (rejected,) = of_kind(lines, "rejected")
    assert re.match(
        r"gelu \(aten\.gelu\.default\): .*torch_executed_ops.* \[user-excluded\]", rejected
    )


def test_graphs_are_files_before_and_after_each_pass_that_changes_one(tmp_path):
    """Named after the pack and the pass; the others are lines."""
    lines = recorded(tmp_path, lambda x: x @ x.T, autocast=torch.float16)

    names = sorted(path.name for path in (tmp_path / "graphs").iterdir())
    assert names == [
        "00-exported.txt",
        "01-opened.txt",
        "02-aten_core.autocast.txt",
        "03-lowered.txt",
        "04-compiled.txt",
    ]
    assert of_kind(lines, "graph") == [f"graphs/{name}" for name in names]
    before, after = ((tmp_path / "graphs" / name).read_text() for name in names[1:3])
    assert "float16" not in before
    assert "dtype = torch.float16" in after
    assert any("attention_masks of aten_core" in line for line in of_kind(lines, "pass"))


def test_layers_are_tensorrts_own_information(tmp_path):
    """JSON, with the names of nodes."""
    recorded(tmp_path, lambda x: x.relu() + 1)

    layers = json.loads((tmp_path / "layers" / "block_0.json").read_text())["Layers"]
    assert any("relu" in str(layer) for layer in layers)


def test_a_block_that_is_not_built_is_told_with_its_split(tmp_path):
    """And what is left to PyTorch in the end."""

    def sin(build):
        return "no sin\nat all" if any("aten.sin" in layer for layer in build.layers) else ""

    with watched_tensorrt(refuses=sin):
        lines = recorded(tmp_path, lambda x: (x.relu() + 1).sin() * 2)

    reason = "reference@11.4.0 could not build the engine:; *no sin; *at all"
    splits, left = "\n".join(of_kind(lines, "split")), "\n".join(of_kind(lines, "not built"))
    assert re.search(f"became two engines: {reason}", splits)
    assert re.search(rf"sin \(aten.sin.default\) {reason}", left)
    assert len(of_kind(lines, "built")) == 2


def test_a_second_compilation_has_a_folder_inside(tmp_path):
    """A first one that failed too; a dry run builds nothing, and another thread is not recorded."""
    model = Function(lambda x: x.relu()).eval()
    with torchtrt.record_compilation(tmp_path):
        with pytest.raises(SettingsError):
            torchtrt.compile(model, [X], min_block_size=1, output_names=["a", "b"])
        torchtrt.compile(model, [X], min_block_size=1, dryrun=True)
        other = threading.Thread(
            target=torchtrt.compile, args=(model, [X]), kwargs={"dryrun": True}
        )
        other.start()
        other.join()
    torchtrt.compile(model, [X], min_block_size=1)

    assert lines_in(tmp_path)[-1].startswith("fails          SettingsError: output_names has 2")
    assert of_kind(lines_in(tmp_path / "compilation-2"), "built") == []
    assert not (tmp_path / "compilation-3").exists()


def test_a_folder_that_is_not_empty_or_writable_is_refused(tmp_path):
    """So that a record is of one compilation."""
    (tmp_path / "file").write_text("mine")
    refused = {
        tmp_path: "is not empty",
        tmp_path / "file": "cannot be written to",
        tmp_path / "a\0b": "is no path",
    }
    for folder, said in refused.items():
        with (
            pytest.raises(UnwritableFileError, match=said),
            torchtrt.record_compilation(folder),
        ):
            torchtrt.compile(Function(lambda x: x.relu()).eval(), [X], min_block_size=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_trace_of_a_call_has_its_parts_in_their_order():
    """One after the other, with the time that each takes."""
    model = Function(lambda x: torch.igamma((x + 1).relu(), x + 1).tanh()).eval()
    compiled = torchtrt.compile(model, [X], min_block_size=1)
    profile = torchtrt.profile(compiled, X, calls=2)
    trace = json.loads(json.dumps(profile.to_chrome_trace()))

    parts = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    rows = {
        event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"
    }
    positions = [rows[part["tid"]] for part in parts]
    assert positions.index("block_0") < positions.index("PyTorch") < positions.index("block_1")
    for first, second in itertools.pairwise(parts):
        assert second["ts"] == pytest.approx(first["ts"] + first["dur"])
    assert sum(part["dur"] for part in parts) == pytest.approx(
        1e3 * sum(entry.milliseconds for entry in profile.entries)
    )
