"""Engines with kernels of packs: saved, loaded, cached, refitted, and refused without their pack."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import torchtrt
from tests.support.compiled import assert_same, engines_of
from tests.support.kernels import INFO, Blending, blend, compiled, rows, windows
from tests.support.processes import run_python
from torchtrt.errors import BuildError, EngineMismatchError, UnreadableFileError
from torchtrt.packs import ConverterPack, Problem, add_pack, current_packs, use_packs
from torchtrt.tensorrt import describe
from torchtrt_kernels.operators import PluginKey
from torchtrt_kernels.tensorrt_plugins import provide
from torchtrt_runtime.serialization.engine_metadata import describe_engine, load_engine
from torchtrt_testing.faults import watched_tensorrt


def saved(folder: Path) -> tuple[Any, Path]:
    """Returns a model with a plugin, and the file that it is saved in."""
    model, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 8)])
    path = folder / "model.pt2"
    torchtrt.save(engine, path)
    return model, path


def test_a_saved_model_runs_by_the_pack(plugins: ConverterPack, tmp_path: Path) -> None:
    """Its engine names the pack, the op and the version; PyTorch's own loader runs it too."""
    model, path = saved(tmp_path)

    loaded = torchtrt.load(path)

    (engine,) = engines_of(loaded)
    assert engine.plugins == (PluginKey("kernels", "engine_kernels::windows", "1"),)
    assert_same(loaded, model, torch.rand(5, 8))
    assert_same(torch.export.load(path).module(), model, torch.rand(5, 8))


def test_a_saved_model_without_the_pack_names_the_distribution(
    plugins: ConverterPack, tmp_path: Path
) -> None:
    """When it is loaded, not when it is called."""
    _, path = saved(tmp_path)
    packs = current_packs()
    without = tuple(loaded for loaded in packs.loaded if loaded.info.name != "kernels")
    packs = replace(packs, loaded=without)

    with use_packs(packs):
        with pytest.raises(
            EngineMismatchError,
            match=r"block_0 runs the op engine_kernels::windows by version 1 .* pack kernels, which is not installed.*"
            r"pip install their-kernels",
        ):
            torchtrt.load(path)
        key = PluginKey("kernels", "engine_kernels::windows", "1")  # of an earlier torchtrt
        with pytest.raises(EngineMismatchError, match="Install the distribution of this pack"):
            provide([key], "The engine")
    broken = Problem("ImportError: libfoo.so.2", "Repair their-kernels.", pack="kernels")
    with (
        use_packs(packs, [broken]),
        pytest.raises(
            EngineMismatchError,
            match=r"not in use here: ImportError: libfoo\.so\.2\. Repair their-kernels\.$",
        ),
    ):
        provide([key], "The engine")


def test_a_saved_model_wants_the_version_that_it_was_built_with(
    plugins: ConverterPack, tmp_path: Path
) -> None:
    """A pack whose op has changed raises it."""
    _, path = saved(tmp_path)
    packs = current_packs()
    newer = ConverterPack("kernels")
    newer.plugin(windows, version="2")
    changed = tuple(
        replace(loaded, pack=newer) if loaded.info.name == "kernels" else loaded
        for loaded in packs.loaded
    )

    with (
        use_packs(replace(packs, loaded=changed)),
        pytest.raises(EngineMismatchError, match=r"kernels 1\.2 has version 2 of it\. Install"),
    ):
        torchtrt.load(path)


def test_a_pack_may_keep_earlier_versions(plugins: ConverterPack, tmp_path: Path) -> None:
    """New engines use the version that is registered first."""
    model, path = saved(tmp_path)
    packs = current_packs()
    without = tuple(loaded for loaded in packs.loaded if loaded.info.name != "kernels")
    newer = ConverterPack("kernels")
    newer.plugin(windows, version="2")
    newer.plugin(windows, version="1")

    with use_packs(replace(packs, loaded=without)):
        add_pack(newer, INFO)
        _, engine = compiled(lambda x: windows(x, 3, 2) + 1, [torch.rand(2, 8)])

        assert [key.version for key in engines_of(engine)[0].plugins] == ["2"]
        assert_same(torchtrt.load(path), model, torch.rand(5, 8))


def test_a_process_without_the_pack_names_it(plugins: ConverterPack, tmp_path: Path) -> None:
    """A plan alone has its namespace, which is the pack."""
    _, path = saved(tmp_path)
    engine = engines_of(torchtrt.load(path))[0]
    (tmp_path / "model.plan").write_bytes(bytes(engine.plan))
    code = (
        "import sys, torchtrt\n"
        "for load, path in zip((torchtrt.load, torchtrt.engine_module), sys.argv[1:]):\n"
        "    try:\n"
        "        with torchtrt.use_tensorrt(sys.argv[3]): load(path)\n"
        "    except torchtrt.errors.EngineError as error: print(error)"
    )
    files = path, tmp_path / "model.plan"

    done = run_python("-c", code, *map(str, files), engine.tensorrt, check=True)

    of_model, of_plan = done.stdout.splitlines()
    assert "pip install their-kernels" in of_model
    assert "Cannot find plugin: engine_kernels::windows, version: 1, namespace: kernels" in of_plan


@pytest.mark.parametrize("description", [True, False])
def test_a_plan_runs_by_the_pack(plugins: ConverterPack, tmp_path: Path, description: bool) -> None:
    """With its description, and without: then the plugins of all packs are there."""
    model, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")

    loaded = torchtrt.engine_module(tmp_path / "model.plan", description=description)

    x = torch.rand(3, 8)
    torch.testing.assert_close(loaded(x)[0], model(x))


@pytest.mark.parametrize(
    "malformed",
    [7, "x", [1], [{}], [{"pack": "kernels"}], [{"pack": [], "name": {}, "version": 1}]],
)
def test_malformed_names_of_plugins_are_an_unreadable_file(
    plugins: ConverterPack, tmp_path: Path, malformed: Any
) -> None:
    """In a description, and beside a plan."""
    _, engine = compiled(lambda x: windows(x, 3, 2) + 1, [torch.rand(2, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")
    beside = tmp_path / "model.plan.json"
    beside.write_text(json.dumps({**json.loads(beside.read_text()), "plugins": malformed}))
    (module,) = engines_of(engine)
    description = {**json.loads(json.dumps(describe_engine(module))), "plugins": malformed}

    with pytest.raises(UnreadableFileError):
        torchtrt.engine_module(tmp_path / "model.plan")
    with pytest.raises(UnreadableFileError):
        load_engine(description, module.plan)


def test_a_plan_of_an_earlier_torchtrt_has_no_plugins(
    plugins: ConverterPack, tmp_path: Path
) -> None:
    """Its description lacks the entry."""
    model, engine = compiled(lambda x: x + 1, [torch.rand(2, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")
    beside = tmp_path / "model.plan.json"
    data = json.loads(beside.read_text())
    del data["plugins"]
    beside.write_text(json.dumps(data))

    loaded = torchtrt.engine_module(tmp_path / "model.plan")

    x = torch.rand(2, 8)
    torch.testing.assert_close(loaded(x)[0], model(x))


CHANGED = """
import sys, torch, torchtrt
from torchtrt.packs import ConverterPack, PackInfo, add_pack

@torch.library.custom_op("engine_kernels::windows", mutates_args=())
def windows(x: torch.Tensor, step: int, size: int = 1) -> torch.Tensor:
    return x.unfold(-1, size, step).contiguous()

windows.register_fake(lambda x, step, size=1: x.new_empty(*x.shape[:-1], 1, size))
pack = ConverterPack("kernels")
pack.plugin(windows)
add_pack(pack, PackInfo("kernels", "their-kernels", "1.2", "/packs"))
model, plan = sys.argv[1:]
for load in (
    lambda: torchtrt.load(model),
    lambda: torchtrt.engine_module(plan, description=True),
    lambda: torchtrt.engine_module(plan, description=False),
):
    try:
        load()
    except Exception as error:
        print(type(error).__name__, " ".join(str(error).split()))
"""


def test_a_changed_schema_under_the_same_version_is_refused(
    plugins: ConverterPack, tmp_path: Path
) -> None:
    """The saved arguments would mean something else; a plan without its description says so too."""
    _, path = saved(tmp_path)
    _, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 8)])
    torchtrt.export_engine(engine, tmp_path / "model.plan")
    environment = {**os.environ, "TORCHTRT_TENSORRT": describe()}

    done = run_python("-c", CHANGED, path, tmp_path / "model.plan", env=environment, check=True)

    kinds = "EngineMismatchError", "EngineMismatchError", "EngineError"
    for line, kind in zip(done.stdout.splitlines(), kinds, strict=True):
        assert re.search(
            "had the schema .*size, SymInt step=1.* and has .*step, SymInt size=1", line
        )
        assert line.startswith(kind)


def test_a_weight_that_tensorrt_cannot_replace_is_no_surprise_of_a_refit(
    plugins: ConverterPack,
) -> None:
    """The engine is not built, and the error names the weight and the op."""
    model, x = Blending().eval(), torch.rand(3)
    settings = {"immutable_weights": False, "min_block_size": 1}
    said = r"cannot replace the weights 'weight' of block_0, which has plugins \(engine_kernels::blend\)"
    refused = pytest.raises(BuildError, match=said)
    with watched_tensorrt() as tensorrt:

        class Refitter(tensorrt.module.Refitter):  # type: ignore[misc, name-defined]
            def get_all_weights(self) -> list[str]:
                return []

        tensorrt.module.Refitter = Refitter
        with refused:
            torchtrt.compile(model, [x], require_full_compilation=True, **settings)
        without = torchtrt.compile(model, [x], torch_executed_ops=blend._opoverload, **settings)
    assert_same(without, model, x)


def test_a_plugin_takes_part_in_the_cache(plugins: ConverterPack, tmp_path: Path) -> None:
    """The engine is kept, and its plugins with it."""
    function = lambda x: windows(x, 3, 2) + 1  # noqa: E731
    settings = {"engine_cache": tmp_path / "cache"}

    model, first = compiled(function, [torch.rand(3, 8)], **settings)
    _, second = compiled(function, [torch.rand(3, 8)], **settings)

    assert [block.cached for block in first.report.blocks] == [False]
    assert [block.cached for block in second.report.blocks] == [True]
    assert_same(second, model, torch.rand(3, 8))
    assert engines_of(second)[0].plugins == engines_of(first)[0].plugins
