"""Settings that make an engine run elsewhere, or otherwise: what they set and need, and what files record of them."""

from __future__ import annotations

import contextlib
import json

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import (
    EngineError,
    EngineMismatchError,
    InputError,
    SettingsError,
    SettingsWarning,
)
from torchtrt_cli import main
from torchtrt_runtime.serialization.engine_metadata import tensorrt_for
from torchtrt_testing.faults import watched_tensorrt

X = torch.rand(3, 8)
SETTINGS = {
    "sparse_weights": True,
    "version_compatible": True,
    "hardware_compatible": True,
    "max_aux_streams": 2,
    "enable_weight_streaming": True,
}


class Model(nn.Module):
    """Two engines with weights, and PyTorch between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)).cumsum(0)) + 1


def compiled(model, **settings):
    """Returns a model compiled to two engines."""
    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.cumsum"}, **settings}
    return torchtrt.compile(model, [X], **settings)


def configured(**settings):
    """Returns the configuration that the last engine of a model was built with."""
    model = Model().eval()
    with watched_tensorrt() as tensorrt:
        torch.testing.assert_close(compiled(model, **settings)(X), model(X))
    return tensorrt.builds[-1].config


@pytest.mark.parametrize(
    ("setting", "flag"),
    [("sparse_weights", "SPARSE_WEIGHTS"), ("version_compatible", "VERSION_COMPATIBLE")],
)
def test_a_setting_sets_its_flag(every_tensorrt, setting, flag):
    """And nothing else does."""
    for value in (False, True):
        config = configured(**{setting: value})
        assert value is config.get_flag(getattr(torchtrt.trt.BuilderFlag, flag))


def test_levels_and_numbers_are_set(every_tensorrt):
    """The level of compatibility, and the number of streams; TensorRT's own without the settings."""
    level = torchtrt.trt.HardwareCompatibilityLevel
    config = configured()
    assert (level.NONE, -1) == (config.hardware_compatibility_level, config.max_aux_streams)
    config = configured(hardware_compatible=True, max_aux_streams=0)
    assert (level.AMPERE_PLUS, 0) == (config.hardware_compatibility_level, config.max_aux_streams)


TILING = {"tiling_optimization_level": "moderate", "l2_limit_for_tiling": 1 << 20}


def test_tiling_is_set_where_tensorrt_has_it(every_tensorrt):
    """TensorRT's own without the settings; 8.6 lacks it, and each setting says so."""
    if every_tensorrt == "reference@8.6.0":
        for name, value in TILING.items():
            with pytest.raises(SettingsError, match=rf"setting {name}=.* needs tiling .* 10\.8 on"):
                configured(**{name: value})
        return
    levels = torchtrt.trt.TilingOptimizationLevel
    for settings, expected in (({}, (levels.NONE, -1)), (TILING, (levels.MODERATE, 1 << 20))):
        config = configured(**settings)
        assert expected == (config.tiling_optimization_level, config.l2_limit_for_tiling)


POOLS = {
    "dla_sram_size": ("DLA_MANAGED_SRAM", 1 << 20),
    "dla_local_dram_size": ("DLA_LOCAL_DRAM", 1 << 21),
    "dla_global_dram_size": ("DLA_GLOBAL_DRAM", 1 << 22),
}


@contextlib.contextmanager
def two_dlas():
    """Lets the TensorRT in use find two DLAs, and yields the core of each runtime that loads an engine."""
    cores = []
    with watched_tensorrt() as tensorrt:

        class Runtime(tensorrt.module.Runtime):
            num_DLA_cores = 2

            def deserialize_cuda_engine(self, plan):
                cores.append(self.DLA_core)
                return super().deserialize_cuda_engine(plan)

        tensorrt.module.Runtime = Runtime
        yield cores


def test_engines_for_a_dla_are_built_and_loaded_for_it(every_tensorrt, tmp_path):
    """The reference has none, and runs the plan all the same."""
    trt = torchtrt.trt
    config = configured()
    assert config.default_device_type == trt.DeviceType.GPU
    assert not config.get_flag(trt.BuilderFlag.GPU_FALLBACK)
    limits = {name: limit for name, (_, limit) in POOLS.items()}
    with two_dlas():
        config = configured(dla_core=1, allow_gpu_fallback=True, **limits)
    assert config.default_device_type == trt.DeviceType.DLA
    assert config.DLA_core == 1
    assert config.get_flag(trt.BuilderFlag.GPU_FALLBACK)
    for pool, limit in POOLS.values():
        assert config.get_memory_pool_limit(getattr(trt.MemoryPoolType, pool)) == limit

    model = Model().eval()
    with two_dlas() as cores:
        torchtrt.save(compiled(model, dla_core=1), tmp_path / "model.pt2")
        loaded = torchtrt.load(tmp_path / "model.pt2")
        torch.testing.assert_close(loaded(X), model(X))
        with torchtrt.runtime_settings(loaded, dla_core=0):
            loaded(X)
    assert cores == [1, 1, 0, 0]


def test_a_dla_that_is_not_here_is_an_error_before_anything_is_built(every_tensorrt):
    with pytest.raises(SettingsError, match=r"dla_core=0 needs a DLA .* finds no such cores here"):
        compiled(Model().eval(), dla_core=0)


def test_settings_of_a_dla_without_one_are_warned_of():
    with pytest.warns(SettingsWarning, match="dla_sram_size is for the setting dla_core"):
        compiled(Model().eval(), dla_sram_size=1 << 20)


def test_an_engine_capability_is_set(every_tensorrt):
    """As a text, or as TensorRT's own."""
    capabilities = torchtrt.trt.EngineCapability
    assert configured().engine_capability == capabilities.STANDARD
    for value in ("safety", capabilities.SAFETY):
        config = configured(engine_capability=value)
        assert config.engine_capability == capabilities.SAFETY


def test_engines_for_windows_are_built_where_tensorrt_can(every_tensorrt):
    windows = {"enable_cross_compile_for_windows": True}
    if every_tensorrt == "reference@8.6.0":
        with pytest.raises(SettingsError, match=r"needs cross-compilation .* 10\.2 on"):
            configured(**windows)
        return
    platforms = torchtrt.trt.RuntimePlatform
    assert configured().runtime_platform == platforms.SAME_AS_BUILD
    assert configured(**windows).runtime_platform == platforms.WINDOWS_AMD64
    for other in ({"tune": True}, {"verify": "engines"}, {"immutable_weights": False}):
        with pytest.raises(SettingsError, match="engines that do not run here"):
            torchtrt.CompilationSettings(**windows, **other)


def test_a_setting_that_this_tensorrt_lacks_is_an_error_that_says_which_has_it():
    """Before anything is exported, in a dry run too."""

    class Unexportable(nn.Module):
        def forward(self, x):
            raise AssertionError

    for more in ({}, {"dryrun": True}):
        with (
            torchtrt.use_tensorrt("reference@8.6.0"),
            pytest.raises(
                SettingsError, match=r"from version 10\.0 on; the one in use is reference@8\.6\.0"
            ),
        ):
            torchtrt.compile(Unexportable().eval(), [X], enable_weight_streaming=True, **more)


@pytest.mark.parametrize(
    "keywords",
    [
        {"sparse_weights": 1},
        {"version_compatible": None},
        {"hardware_compatible": "yes"},
        {"enable_weight_streaming": 10},
        {"max_aux_streams": -1},
        {"max_aux_streams": 10**12},
        {"tiling_optimization_level": "most"},
        {"l2_limit_for_tiling": 0},
        {"engine_capability": "fast"},
        {"dla_core": -1},
        {"dla_sram_size": 0},
    ],
    ids=str,
)
def test_an_unusable_value_is_refused(keywords):
    """As of any setting."""
    with pytest.raises(SettingsError, match="it must be"):
        torchtrt.CompilationSettings(**keywords)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_cache_knows_engines_of_other_settings_apart(tmp_path, setting):
    """Each changes the engine."""
    hits = []
    for value in (None, SETTINGS[setting], SETTINGS[setting]):
        settings = {} if value is None else {setting: value}
        torch.manual_seed(0)
        made = compiled(Model().eval(), engine_cache=tmp_path, **settings)
        hits.append({block.cached for block in made.report.blocks})
        made(X)

    assert [{False}, {False}, {True}] == hits


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # PyTorch about its own copying
def test_files_say_it_and_run(every_tensorrt, tmp_path, capsys):
    """Loaded, loaded by PyTorch, saved again and refitted; ``inspect`` shows where the engines run."""
    model, other, path = Model().eval(), Model().eval(), tmp_path / "model.pt2"
    options = {"version_compatible": True, "hardware_compatible": True, "immutable_weights": False}
    torchtrt.save(compiled(model, **options), path)
    loaded = torchtrt.load(path)
    assert {("version", "hardware")} == {engine.compatible for engine in engines_of(loaded)}
    torch.testing.assert_close(loaded(X), model(X))
    torch.testing.assert_close(torch.export.load(path).module()(X), model(X))
    torch.testing.assert_close(torchtrt.refit_module_weights(loaded, other)(X), other(X))
    torchtrt.save(loaded, path)

    assert 0 == main(["inspect", str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert [["version", "hardware"]] * 2 == [row["compatible"] for row in answer["engines"]]
    assert answer["settings"]["version_compatible"]
    assert 0 == main(["inspect", str(path)])
    text = capsys.readouterr().out
    assert "run in later TensorRTs too" in text
    assert "every GPU from Ampere on" in text


H200 = "NVIDIA H200 (9.0)"


@pytest.mark.parametrize(
    ("version", "capability", "compatible"),
    [
        ("10.9.0", (9, 0), ()),
        ("10.16.1", (9, 0), ("version",)),
        ("11.4.0", (9, 0), ("version",)),
        ("10.9.0", (8, 0), ("hardware",)),
        ("10.9.0", (12, 0), ("hardware",)),
        ("11.4.0", (8, 9), ("version", "hardware")),
    ],
)
def test_an_engine_loads_where_it_runs(machine, version, capability, compatible):
    """In the version and on the GPU that it is for, and where it is compatible."""
    machine.has_tensorrt(version)
    machine.has_gpu(capability)
    tensorrt = tensorrt_for("TensorRT 10.9.0", H200, "It", compatible)

    assert version == tensorrt.__version__


@pytest.mark.parametrize(
    ("version", "capability", "compatible", "message"),
    [
        ("10.16.1", (9, 0), (), "unless they are compiled with version_compatible"),
        ("10.16.1", (9, 0), ("hardware",), "unless they are compiled with version_compatible"),
        ("10.8.0", (9, 0), ("version",), "load in the version that built them and in later ones"),
        ("8.6.0", (9, 0), ("version",), "load in the version that built them and in later ones"),
        ("10.9.0", (8, 0), (), "unless they are compiled with hardware_compatible"),
        ("10.9.0", (8, 0), ("version",), "unless they are compiled with hardware_compatible"),
        ("10.9.0", (7, 5), ("hardware",), "compute capability 8.0 and later"),
    ],
)
def test_an_engine_is_refused_where_it_does_not_run(
    machine, version, capability, compatible, message
):
    """With the rule that it breaks."""
    machine.has_tensorrt(version)
    machine.has_gpu(capability)
    with pytest.raises(EngineMismatchError, match=message):
        tensorrt_for("TensorRT 10.9.0", H200, "It", compatible)


@pytest.fixture(params=["reference@10.16.1", "reference@11.4.0"])
def streaming(request):
    """A model whose engines stream weights, and the same compiled."""
    with torchtrt.use_tensorrt(request.param):
        model = Model().eval()
        yield model, compiled(model, enable_weight_streaming=True)


def budgets(made):
    """Returns what was set in TensorRT, for each engine."""
    return [
        engine.deserialize(torch.device("cpu"))[1].weight_streaming_budget_v2
        for engine in engines_of(made)
    ]


def test_a_budget_is_shared_by_the_engines_and_returns_with_the_block(streaming):
    """By the size of their weights; TensorRT's own choice comes first and last."""
    model, made = streaming
    sizes = budgets(made)
    with torchtrt.weight_streaming(made) as weights:
        total = weights.total_device_budget
        assert sum(sizes) == total == weights.device_budget == weights.automatic_device_budget
        for budget in (0, 100, total // 2, total):
            weights.device_budget = budget
            assert budget == weights.device_budget == sum(budgets(made))
            assert all(budget <= size for budget, size in zip(budgets(made), sizes, strict=True))
            torch.testing.assert_close(made(X), model(X))
    assert sizes == budgets(made)
    torch.testing.assert_close(made(X), model(X))


def test_a_budget_holds_without_a_block(streaming, tmp_path):
    """Until it is set again; a file does not keep it, because it is about a machine."""
    model, made = streaming
    torchtrt.weight_streaming(made).device_budget = 64
    assert 64 == torchtrt.weight_streaming(made).device_budget
    torchtrt.save(made, tmp_path / "model.pt2")
    loaded = torchtrt.weight_streaming(torchtrt.load(tmp_path / "model.pt2"))

    assert loaded.total_device_budget == loaded.device_budget
    torch.testing.assert_close(made(X), model(X))


@pytest.mark.parametrize("budget", [-1, 10**9, 0.5, "all", True], ids=str)
def test_a_budget_that_is_none_is_refused(streaming, budget):
    """With the largest one that makes sense."""
    _, made = streaming
    weights = torchtrt.weight_streaming(made)
    with pytest.raises(InputError, match=f"from 0 to {weights.total_device_budget}"):
        weights.device_budget = budget


def test_what_streams_no_weights_has_no_budget():
    """A model that was compiled without, and what is no compiled model."""
    with pytest.raises(EngineError, match="enable_weight_streaming=True"):
        torchtrt.weight_streaming(compiled(Model().eval()))
    with pytest.raises(InputError, match="not a Model"):
        torchtrt.weight_streaming(Model())
