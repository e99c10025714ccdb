"""What is wrong with a file is an error that says what, and nothing in a file is ever executed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import zipfile

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import (
    EngineMismatchError,
    MissingOperatorError,
    TorchTRTError,
    UnreadableFileError,
)

X = torch.rand(3, 3)


class Model(nn.Module):
    """Two engines, and PyTorch between them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Buffer(torch.rand(3, 3))

    def forward(self, x):
        """Returns singular values."""
        return torch.linalg.svdvals(x + self.weight) * 2 + self.weight[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved model, and what it returns."""
    path = tmp_path_factory.mktemp("saved") / "model.pt2"
    sizes = torchtrt.Input(min_shape=(1, 3), opt_shape=(3, 3), max_shape=(3, 3))
    model = Model().eval()
    with torchtrt.use_tensorrt("reference@10.16.1"):
        torchtrt.save(
            torchtrt.compile(model, [X], min_block_size=1, torch_executed_ops={"aten.add"}), path
        )
        varying = path.with_name("varying.pt2")
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
        torchtrt.save(torchtrt.compile(model, [sizes], min_block_size=1), varying)
    return path, varying, torchtrt.load(path)(X)


def rewritten(path, target, **changes):
    """Returns a copy of a file in which records are changed, and their checksums are right."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as made:
        for info in source.infolist():
            data = source.read(info)
            for ending, change in changes.items():
                if info.filename.endswith(ending.replace("__", ".")):
                    data = change(data)
            made.writestr(info.filename, data)
    return target


def edited(pattern, replacement):
    """Returns a change of text, which must be there."""

    def change(data):
        changed, count = re.subn(pattern, lambda _: replacement.encode(), data)
        assert count
        return changed

    return change


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(fraction=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_makes_no_difference(saved, tmp_path, fraction, bit):
    """No damage gives other results, nor another kind of error than one that says the file is damaged."""
    path, _, expected = saved
    data = bytearray(path.read_bytes())
    data[int(fraction * len(data))] ^= 1 << bit
    damaged = tmp_path / "damaged.pt2"
    damaged.write_bytes(data)

    with contextlib.suppress(UnreadableFileError):
        assert torch.equal(expected, torchtrt.load(damaged)(X))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_an_error_that_says_so(saved, tmp_path, share):
    """At whatever byte it ends."""
    data = saved[0].read_bytes()
    (tmp_path / "short.pt2").write_bytes(data[: int(share * len(data))])

    with pytest.raises(UnreadableFileError, match="incomplete"):
        torchtrt.load(tmp_path / "short.pt2")


def test_a_file_of_another_kind_is_an_error_that_says_which(tmp_path):
    """A missing file, text, a folder, a pickle, an exported program."""
    (tmp_path / "text.pt2").write_text("hello")
    torch.save(X, tmp_path / "tensor.pt2")
    torch.export.save(torch.export.export(nn.Linear(3, 3), (X,)), tmp_path / "program.pt2")
    for name, message in (
        ("nothing.pt2", "There is no file"),
        (".", "is a folder"),
        ("text.pt2", "It is not a saved model"),
        ("tensor.pt2", "it holds no compiled model"),
        ("program.pt2", r"torchtrt\.compile\(torch\.export\.load"),
    ):
        with pytest.raises(UnreadableFileError, match=message):
            torchtrt.load(tmp_path / name)


def test_a_damaged_plan_is_found_by_pytorchs_way_of_loading_too(saved, tmp_path):
    """The operator compares the plan's checksum before TensorRT sees the plan."""
    path = tmp_path / "model.pt2"
    rewritten(saved[0], path, **{"constants/tensor_0": lambda data: data[:-1] + b"!"})
    short = tmp_path / "short.pt2"
    for load in (lambda: torchtrt.load(path), lambda: torch.export.load(path).module()(X)):
        with pytest.raises(UnreadableFileError, match="checksum"):
            load()
    rewritten(saved[0], short, **{"constants/tensor_0": lambda data: data[:-100]})
    with pytest.raises(UnreadableFileError, match="truncated"):
        torchtrt.load(short)


def test_another_tensorrt_is_an_error_that_names_both(saved, tmp_path, machine):
    """One that is not installed, a version that it lacks, and the real one of another version."""
    for built_by, message in (
        ("reference@9.9.9", "built by reference@9.9.9, .* no version '9.9.9'.* 8.6.0"),
        ("other@1", "built by other@1, which is not here. No TensorRT named 'other'"),
        ("TensorRT 10.0.1", "built by TensorRT 10.0.1, which is not here"),
    ):
        changed = edited(rb"reference@10\.16\.1", built_by)
        path = rewritten(saved[0], tmp_path / "model.pt2", model__json=changed)
        for load in (torchtrt.load, lambda path: torch.export.load(path).module()(X)):
            with pytest.raises(EngineMismatchError, match=message):
                load(path)

    machine.has_tensorrt("10.9.0")
    with pytest.raises(
        EngineMismatchError, match=r"built by TensorRT 10\.0\.1, and this is TensorRT 10\.9\.0"
    ):
        torchtrt.load(path)


def test_another_gpu_is_an_error_that_names_both(saved, tmp_path, machine):
    """Engines run where they were built: on the compute capability that the file names."""

    def change_program(data):
        data = edited(rb"reference@10\.16\.1", "TensorRT 10.0.1")(data)
        return data.replace(rb"\"gpu\": \"", rb"\"gpu\": \"NVIDIA H200 (9.0)")

    path = rewritten(saved[0], tmp_path / "model.pt2", model__json=change_program)
    machine.has_tensorrt("10.0.1")
    machine.has_no_gpu()
    with pytest.raises(
        EngineMismatchError, match=r"built for an NVIDIA H200 \(9\.0\), and PyTorch finds no GPU"
    ):
        torchtrt.load(path)
    machine.has_gpu((8, 0), "NVIDIA A100")
    with pytest.raises(
        EngineMismatchError, match=r"H200 \(9\.0\), and this is an NVIDIA A100 \(8\.0\)"
    ):
        torchtrt.load(path)
    machine.has_gpu((9, 0), "NVIDIA H200")
    engines = engines_of(torchtrt.load(path))
    assert {"NVIDIA H200 (9.0)"} == {engine.gpu for engine in engines}


def test_a_missing_operator_is_an_error_that_names_its_library(tmp_path, fresh):
    """A library whose operator PyTorch runs has to be imported before the model is loaded."""
    library = (
        "import torch\n"
        "@torch.library.custom_op('acoustics::echo', mutates_args=())\n"
        "def echo(x: torch.Tensor) -> torch.Tensor: return x * 3\n"
        "@echo.register_fake\n"
        "def _(x): return torch.empty_like(x)\n"
    )
    (tmp_path / "acoustics.py").write_text(library)
    make = (
        "import sys, torch, torchtrt, acoustics\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x): return torch.ops.acoustics.echo(x + 1) * 2\n"
        "torchtrt.save(torchtrt.compile(Model().eval(), [torch.ones(2)], min_block_size=1), sys.argv[1])\n"
    )
    use = (
        "import sys, torch, torchtrt\n"
        "try: torchtrt.load(sys.argv[1])\n"
        "except torchtrt.errors.MissingOperatorError as error: print(error)\n"
        "import acoustics\n"
        "print(torchtrt.load(sys.argv[1])(torch.zeros(2)).tolist())\n"
    )
    path = tmp_path / "model.pt2"
    fresh(make, path, PYTHONPATH=str(tmp_path))
    message, result = fresh(use, path, PYTHONPATH=str(tmp_path)).splitlines()

    assert "acoustics.echo.default" in message
    assert "Import the library of acoustics" in message
    assert "[6.0, 6.0]" == result
    assert issubclass(MissingOperatorError, TorchTRTError)


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def _signatures(program):
    """Yields how the calls of a program's modules nest."""
    for call in program.get("graph_module", {}).get("module_call_graph", ()):
        if call["signature"] is not None:
            yield call["signature"]


def test_nothing_in_a_file_is_executed(saved, tmp_path, monkeypatch):
    """Pickles, code in sizes and names, calls of what is no operator, and modules are refused or not read."""
    mark = tmp_path / "mark"
    code = f"__import__('os').mkdir('{mark}')"
    pickled = pickle.dumps(Bomb(mark))
    stream = io.BytesIO()
    torch.save(Bomb(mark), stream)

    def as_pickle(data):
        config = json.loads(data)
        for entry in config["config"].values():
            entry["use_pickle"] = True
        return json.dumps(config).encode()

    def as_object(data):
        config = json.loads(data)
        for entry in config["config"].values():
            entry["path_name"] = "opaque_obj_0"
        return json.dumps(config).encode()

    def importing(context):
        def change(data):
            loaded = json.loads(data)
            tree = json.dumps([1, {"type": kind, "context": context, "children_spec": []}])
            for holder in (loaded, *_signatures(loaded)):
                for key in {"output_tree", "out_spec"} & set(holder):
                    holder[key] = tree
            return json.dumps(loaded).encode()

        kind = "collections.defaultdict" if isinstance(context, dict) else "builtins.dict"
        return change

    (tmp_path / "torchtrt_test_imported.py").write_text(f"__import__('os').mkdir({str(mark)!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = "torchtrt_test_imported"
    key = importing(json.dumps([{"__enum__": True, "fqn": f"{module}:A", "name": "B"}]))
    factory = importing(
        {"default_factory_module": module, "default_factory_name": "A", "dict_context": []}
    )
    size = edited(rb'"expr_str": "[^"]*"', f'"expr_str": "{code}"')
    attribute = edited(rb'"expr_str": "[^"]*"', '"expr_str": "().__class__"')
    name = edited(rb'"name": "input_?\d*"', f'"name": "x=({code})"'.replace("'", "\\u0027"))
    target = edited(rb"torch\.ops\.aten\.linalg_svdvals\.default", "torch.hub.os.mkdir")
    for number, (source, changes) in enumerate(
        (
            (
                saved[0],
                {
                    "weights/weight_0": lambda _: stream.getvalue(),
                    "weights_config__json": as_pickle,
                },
            ),
            (
                saved[0],
                {"constants/tensor_0": lambda _: pickled, "constants_config__json": as_object},
            ),
            (saved[1], {"model__json": size}),
            (saved[1], {"model__json": attribute}),
            (saved[1], {"model__json": name}),
            (saved[0], {"model__json": target}),
            *(
                (saved[0], {record: change})
                for record in ("model__json", "torchtrt__json")
                for change in (key, factory)
            ),
            (saved[0], {"torchtrt__json": edited(rb'"format": 1', '"format": 99')}),
            (saved[0], {"torchtrt__json": lambda _: b"[" * 100_000}),
        )
    ):
        path = rewritten(source, tmp_path / f"{number}.pt2", **changes)
        with pytest.raises(UnreadableFileError):
            torchtrt.load(path)
        assert not mark.exists(), number
    harmless = rewritten(
        saved[0],
        tmp_path / "samples.pt2",
        **{"sample_inputs/model.pt": lambda _: stream.getvalue()},
    )
    assert torch.equal(saved[2], torchtrt.load(harmless)(X))
    assert not mark.exists()


def test_a_file_may_be_replaced_while_a_model_from_it_runs(saved, tmp_path):
    """What was loaded is in memory."""
    path = tmp_path / "model.pt2"
    shutil.copy(saved[0], path)
    loaded = torchtrt.load(path)
    path.write_bytes(b"")

    assert torch.equal(saved[2], loaded(X))
