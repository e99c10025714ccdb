"""The settings of TensorRT for RTX: real builds, and as much of its runtime as there is without a GPU."""

import copy
import dataclasses
import json
from types import SimpleNamespace

import pytest
import torch

import torchtrt
import torchtrt_rtx
from tests.support.stores import Store
from torchtrt.errors import CacheWarning, EngineError, SettingsError
from torchtrt_cli import main
from torchtrt_runtime import EngineModule, RuntimeSettings
from torchtrt_runtime.runtime_settings import KernelCache, kernels_key
from torchtrt_testing.faults import watched_tensorrt

needs_wheels = pytest.mark.skipif(
    not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
)
DEFAULT = ["8.0", "8.6", "8.9", "12.0+"]
ALL = ["7.5", "8.0", "8.6", "8.9", "12.0", "12.1"]


def compiled(**settings):
    """Returns a small model, compiled by the TensorRT in use."""
    torch.manual_seed(0)
    # GPUs of compute capability 7.5 multiply no matrices of float32.
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval().half()
    x = torch.rand(2, 8, dtype=torch.float16)
    return torchtrt.compile(model, [x], **{"require_full_compilation": True, **settings})


def engine_of(model):
    """Returns the engine of a model that has one."""
    return next(module for module in model.modules() if isinstance(module, EngineModule))


@pytest.fixture
def builds(rtx):
    """The builds of TensorRT for RTX."""
    with watched_tensorrt() as tensorrt:
        yield tensorrt.builds


@needs_wheels
@pytest.mark.parametrize(
    ("targets", "wanted", "set_targets"),
    [
        (None, DEFAULT, []),
        ("8.6", ["8.6"], ["SM86"]),
        (("12.0", "8.9"), ["8.9", "12.0"], ["SM89", "SM120"]),
        ("7.5", ["7.5"], ["SM75"]),
        ("all", ALL, ["SM75", "SM80", "SM86", "SM89", "SM120", "SM121"]),
    ],
)
def test_an_engine_is_built_for_the_gpus_that_are_asked_for(builds, targets, wanted, set_targets):
    """The builder gets them, and the report and the engine name them."""
    model = compiled(target_compute_capabilities=targets)

    (config,) = (build.config for build in builds)
    count = config.num_compute_capabilities
    assert set_targets == [config.get_compute_capability(index).name for index in range(count)]
    assert (
        wanted == model.report.compute_capabilities == list(engine_of(model).compute_capabilities)
    )


@needs_wheels
@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a CPU cannot do")
def test_the_current_gpu_is_none_where_there_is_none(rtx):
    """And the error lists those that can be named."""
    with pytest.raises(SettingsError, match=r"needs a GPU while building.*7\.5, 8\.0, 8\.6"):
        compiled(target_compute_capabilities="current")


@needs_wheels
def test_the_current_gpu_is_named_by_its_compute_capability(rtx, machine):
    """The file lists the GPUs that run it, wherever it was built."""
    machine.has_gpu((8, 9))

    report = torchtrt.explain(
        torch.nn.ReLU().eval(),
        [torch.rand(2)],
        target_compute_capabilities="current",
        min_block_size=1,
    )

    assert ["8.9"] == report.compute_capabilities


@needs_wheels
def test_a_gpu_that_tensorrt_does_not_build_for_is_an_error(rtx):
    """An H100 is no RTX GPU."""
    with pytest.raises(SettingsError, match=r"names 9\.0, and this TensorRT builds for 7\.5"):
        compiled(target_compute_capabilities=("8.6", "9.0"))


@needs_wheels
def test_a_dtype_that_a_gpu_lacks_is_told_in_the_builders_words(rtx):
    """GPUs of compute capability 7.5 have no bfloat16."""
    model = torch.nn.Linear(8, 8).eval().bfloat16()
    x = torch.rand(2, 8, dtype=torch.bfloat16)

    with pytest.raises(torchtrt.errors.BuildError, match=r"Cannot compile for target.*sm75"):
        torchtrt.compile(
            model, [x], target_compute_capabilities="7.5", require_full_compilation=True
        )


@needs_wheels
@pytest.mark.parametrize(
    ("targets", "capability", "runs"),
    [
        ("8.6", (8, 6), True),
        ("8.6", (8, 9), False),
        ("7.5", (7, 5), True),
        (None, (7, 5), False),
        (None, (12, 1), True),
        ("12.0", (12, 1), False),
    ],
)
def test_an_engine_runs_on_its_gpus_only(rtx, machine, targets, capability, runs):
    """A call on another one names both."""
    engine = engine_of(compiled(target_compute_capabilities=targets))
    machine.has_gpu(capability)

    objection = torchtrt_rtx.device_objection(torch.device("cuda", 0), engine.compute_capabilities)

    assert runs is (objection == "")
    if not runs:
        assert "NVIDIA Something ({}.{})".format(*capability) in objection


@needs_wheels
@pytest.mark.parametrize(
    ("settings", "is_set"),
    [
        ({}, False),
        ({"user_allocation": True}, True),
        ({"cuda_graphs": True}, True),
        ({"cuda_graphs": "overwrite"}, True),
        ({"cuda_graphs": "runtime"}, False),
    ],
)
def test_what_a_stream_captures_allocates_nothing(builds, rtx, settings, is_set):
    """NVIDIA's documentation: stream capture needs the flag. The runtime's own capture does not."""
    compiled(**settings)

    (config,) = (build.config for build in builds)
    assert is_set is config.get_flag(rtx.BuilderFlag.REQUIRE_USER_ALLOCATION)


SETTINGS = {
    "target_compute_capabilities": "8.6",
    "user_allocation": True,
    "runtime_cache": "kernels",
    "kernel_specialization": "eager",
    "cuda_graphs": "runtime",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_another_tensorrt_names_the_one_that_has_it(name):
    """Before exporting, in one form."""
    with (
        torchtrt.use_tensorrt("reference@11.4.0"),
        pytest.raises(
            SettingsError, match=rf"The setting {name}.* TensorRT for RTX has from version"
        ),
    ):
        compiled(**{name: SETTINGS[name]})


@needs_wheels
def test_a_saved_model_keeps_the_runtime_settings(rtx, tmp_path, capsys):
    """They are the model's, and inspecting names the GPUs."""
    path = tmp_path / "model.ttrt"
    folder = str(tmp_path / "kernels")
    stated = RuntimeSettings(folder, "eager", "runtime")
    model = compiled(
        runtime_cache=folder, kernel_specialization="eager", cuda_graphs="runtime",
        target_compute_capabilities=("8.6", "12.0"),
    )  # fmt: skip
    torchtrt.save(model, path)

    loaded = torchtrt.load(path)
    main(["inspect", str(path)])
    shown = capsys.readouterr().out
    main(["inspect", "--json", str(path)])
    data = json.loads(capsys.readouterr().out)

    assert stated == model.runtime_settings == loaded.runtime_settings
    assert stated == engine_of(loaded).runtime_settings
    assert "GPUs of compute capability 8.6, 12.0" in shown
    assert [["8.6", "12.0"]] == [engine["compute_capabilities"] for engine in data["engines"]]
    assert "eager" == data["settings"]["kernel_specialization"]


@needs_wheels
def test_other_runtime_settings_need_no_compilation(rtx):
    """The machine that runs a model has another folder than the one that compiled it."""
    model = compiled()
    model.runtime_settings = RuntimeSettings(kernel_specialization="none")
    model.runtime_settings = dataclasses.replace(model.runtime_settings, cuda_graphs="runtime")

    assert RuntimeSettings(None, "none", "runtime") == engine_of(model).runtime_settings


def test_runtime_settings_that_the_engines_cannot_use_are_an_error():
    """They are refused when they are assigned, and not at the next call."""
    with torchtrt.use_tensorrt("reference@11.4.0"):
        model = compiled()

    with pytest.raises(SettingsError, match=r"kernel_specialization.* TensorRT for RTX"):
        model.runtime_settings = RuntimeSettings(kernel_specialization="lazy")
    assert RuntimeSettings() == model.runtime_settings


@pytest.mark.parametrize(
    "values", [{"cache": 3}, {"kernel_specialization": "fast"}, {"cuda_graphs": "each"}]
)
def test_an_unusable_runtime_setting_is_an_error(values):
    """With the usable values."""
    with pytest.raises(SettingsError, match="is not usable: it must be"):
        RuntimeSettings(**values)


class Cache:
    """A runtime cache as TensorRT for RTX has it, of kernels that are texts."""

    def __init__(self):
        self.content = b""

    def serialize(self):
        return self.content

    def deserialize(self, content):
        self.content = bytes(content)
        return True


class Context:
    """An execution context."""


class Engine:
    """An engine that notes the configuration of its contexts; attributes are those of NVIDIA's classes."""

    def __init__(self):
        self.config = None

    def create_runtime_config(self):
        config = SimpleNamespace(create_runtime_cache=Cache, cache=None)
        config.set_runtime_cache = lambda cache: setattr(config, "cache", cache)
        config.set_execution_context_allocation_strategy = lambda strategy: setattr(
            config, "strategy", strategy
        )
        return config

    def create_execution_context(self, config=None):
        self.config = config
        return Context()


@needs_wheels
def test_a_context_is_configured_by_the_settings(rtx, tmp_path):
    """With the values that NVIDIA's enumerations have."""
    engine = Engine()
    RuntimeSettings(tmp_path, "eager", "runtime", True).new_context(engine, b"plan")
    plain = Engine()
    RuntimeSettings().new_context(plain, b"plan")

    strategy = engine.config.dynamic_shapes_kernel_specialization_strategy
    assert rtx.DynamicShapesKernelSpecializationStrategy.EAGER == strategy
    assert rtx.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE == engine.config.cuda_graph_strategy
    assert rtx.ExecutionContextAllocationStrategy.USER_MANAGED == engine.config.strategy
    assert isinstance(engine.config.cache, Cache)
    assert plain.config is None


@needs_wheels
def test_nvidias_classes_have_what_the_settings_use(rtx):
    """The runtime itself cannot run here."""
    config = set(dir(rtx.IRuntimeConfig))
    assert {
        "create_runtime_cache",
        "set_runtime_cache",
        "cuda_graph_strategy",
        "dynamic_shapes_kernel_specialization_strategy",
    } <= config
    assert {"serialize", "deserialize"} <= set(dir(rtx.IRuntimeCache))
    assert {"create_runtime_config", "create_execution_context"} <= set(dir(rtx.ICudaEngine))
    assert "is_stream_capturable" in dir(rtx.IExecutionContext)


def test_kernels_are_kept_when_the_context_ends(tmp_path):
    """And the next process starts with them."""
    settings, folder = RuntimeSettings(cache=tmp_path / "new"), tmp_path / "new"
    file = folder / kernels_key(b"plan")
    engine = Engine()
    context = settings.new_context(engine, b"plan")
    engine.config.cache.content = b"compiled"
    assert not file.exists()
    del context

    again = Engine()
    settings.new_context(again, b"plan")

    assert b"compiled" == file.read_bytes() == again.config.cache.content
    assert [file] == list(folder.iterdir())
    assert file.name != kernels_key(b"another plan")


def test_kernels_that_have_not_changed_are_not_written(tmp_path):
    """Other processes may read the file."""
    file = tmp_path / "a.kernels"
    file.write_bytes(b"compiled")
    before = file.stat().st_mtime_ns
    cache = KernelCache(file.parent, file.name, Engine().create_runtime_config())

    cache.save()

    assert before == file.stat().st_mtime_ns


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    """The engine runs without kept kernels."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    file = blocked / "a.kernels"
    with pytest.warns(CacheWarning, match="Kernels cannot be kept in"):
        cache = KernelCache(file.parent, file.name, Engine().create_runtime_config())
    cache.cache.content = b"compiled"

    with pytest.warns(CacheWarning, match="Kernels cannot be kept in"):
        cache.save()


def test_an_object_keeps_kernels():
    """Under the name that their file would have."""
    store = Store()
    settings = RuntimeSettings(cache=store)
    engine = Engine()
    context = settings.new_context(engine, b"plan")
    engine.config.cache.content = b"compiled"
    del context

    again = Engine()
    settings.new_context(again, b"plan")

    assert {kernels_key(b"plan"): b"compiled"} == store.kept
    assert b"compiled" == again.config.cache.content


def test_kernels_are_kept_at_a_chosen_time():
    """And those that are compiled later, too: a server need not end for it."""
    store = Store()
    settings = RuntimeSettings(cache=store)
    engine, other = Engine(), Engine()
    contexts = [settings.new_context(engine, b"plan"), settings.new_context(other, b"another plan")]
    other.config.cache.content = b"other"
    kept = []
    for content in (b"first", b"second"):
        engine.config.cache.content = content
        settings.save_kernels(b"plan")
        kept.append(dict(store.kept))
    engine.config.cache.content = b"third"
    contexts.clear()

    key = kernels_key(b"plan")
    assert [{key: b"first"}, {key: b"second"}] == kept
    assert {key: b"third", kernels_key(b"another plan"): b"other"} == store.kept


def test_a_model_without_kept_kernels_has_none_to_save():
    """The error names the setting."""
    with torchtrt.use_tensorrt("reference@11.4.0"):
        model = compiled()

    with pytest.raises(SettingsError, match="runtime_cache"):
        model.save_runtime_cache()


@needs_wheels
def test_a_model_keeps_its_kernels_in_an_object(rtx, tmp_path):
    """Which is no part of copies and files."""
    store = Store()
    model = compiled(runtime_cache=store)
    model.save_runtime_cache()  # nothing has run
    torchtrt.save(model, tmp_path / "model.pt2")

    assert {} == store.kept
    assert store is model.runtime_settings.cache is copy.deepcopy(model).runtime_settings.cache
    assert torchtrt.load(tmp_path / "model.pt2").runtime_settings.cache is None


def test_an_error_of_an_object_that_keeps_kernels_is_a_warning_that_names_it():
    """Once for the same kernels."""

    class Failing(Store):
        def save(self, key, data):
            raise ConnectionError("no route")

    engine = Engine()
    settings = RuntimeSettings(cache=Failing())
    context = settings.new_context(engine, b"plan")
    engine.config.cache.content = b"compiled"
    with pytest.warns(CacheWarning, match=r"Failing raised ConnectionError: no route"):
        settings.save_kernels(b"plan")
    del context


@needs_wheels
def test_an_engine_that_allocates_is_not_captured(rtx):
    """The error names the setting."""
    model = compiled()
    engine = engine_of(model)
    device = torch.device("cuda", 0)
    context = SimpleNamespace(is_stream_capturable=lambda stream: False)
    execution = SimpleNamespace(shapes=[], context=context)
    engine._idle[device, 1] = [execution]

    with pytest.raises(EngineError, match=r"cannot be captured.*user_allocation=True"):
        engine._to_record(device, [], 1)
