"""Runtime settings that change after compiling: CUDA graphs on and off, and settings for a part of a program."""

import copy
import pickle
from contextlib import suppress
from dataclasses import fields

import pytest
import torch

import torchtrt
from plugins.runtime.tests.recording import Model, Tape, check
from torchtrt.errors import InputError, SettingsError
from torchtrt.settings import OF_CALLS
from torchtrt_runtime import CompiledModule, RuntimeSettings
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs
from torchtrt_runtime.modules.execution import Executor

pytestmark = pytest.mark.usefixtures("tape")
ON_TAPE = RuntimeSettings(cuda_graphs=True)


@pytest.fixture
def model():
    """A model."""
    return Model().eval()


@pytest.fixture
def compiled(model):
    """The model, compiled without CUDA graphs; those that are switched on are on the tape."""
    made = torchtrt.compile(model, [torch.randn(2, 4), torch.randn(3)], min_block_size=1)
    return CompiledModule(made.graph_module, made.interface, made.report, made.settings, on_tape)


def on_tape(settings, cuda_graphs, inner):
    """Returns the executor that captures on the tape."""
    inner = inner or Executor()
    return CudaGraphs(cuda_graphs == "overwrite", Tape, inner) if cuda_graphs else inner


def captured_by(compiled, model):
    """Returns how many graphs three calls capture, each with the results of eager PyTorch."""
    made = Tape.made
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, x.normal_(), y.normal_())
    return Tape.made - made


def test_cuda_graphs_are_switched_on_and_off_after_compiling(compiled, model):
    """Captured calls are those of the settings at the time."""
    assert 0 == captured_by(compiled, model)
    compiled.runtime_settings = ON_TAPE
    assert 1 == captured_by(compiled, model)
    compiled.runtime_settings = RuntimeSettings(cuda_graphs="overwrite")
    assert 1 == captured_by(compiled, model)
    x, y = torch.randn(2, 4), torch.randn(3)
    results = [compiled(x, y)[0] for _ in range(3)]
    assert results[1].data_ptr() == results[2].data_ptr()
    compiled.runtime_settings = RuntimeSettings()
    assert 0 == captured_by(compiled, model)


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # PyTorch about its own copying
def test_cuda_graphs_are_switched_on_after_loading(compiled, model, tmp_path):
    """In a file, in a plan and in copies, which keep the settings that were assigned."""
    torchtrt.save(compiled, tmp_path / "model.pt2")
    torchtrt.export_engine(compiled, tmp_path / "model.plan")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    plan = torchtrt.engine_module(tmp_path / "model.plan")
    for module in (loaded, plan):
        assert not isinstance(module.executor, CudaGraphs)
        module.runtime_settings = ON_TAPE
    for module in (loaded, plan, copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert ON_TAPE == module.runtime_settings
        assert isinstance(module.executor, CudaGraphs)


def test_other_settings_drop_what_was_captured(compiled, model):
    """A captured graph has the execution contexts of its time."""
    compiled.runtime_settings = ON_TAPE
    assert 1 == captured_by(compiled, model)
    compiled.runtime_settings = RuntimeSettings(cuda_graphs=True, share_execution_memory=True)
    assert 1 == captured_by(compiled, model)


def test_settings_hold_for_a_block_of_with(compiled, model):
    """The former ones come back, also after an error, and fields that are not named stay."""
    compiled.runtime_settings = RuntimeSettings(share_execution_memory=True)
    with torchtrt.runtime_settings(compiled, cuda_graphs=True) as stated:
        assert RuntimeSettings(cuda_graphs=True, share_execution_memory=True) == stated
        assert 1 == captured_by(compiled, model)
        with suppress(KeyError), torchtrt.runtime_settings(compiled, cuda_graphs=False):
            assert 0 == captured_by(compiled, model)
            raise KeyError
        assert 1 == captured_by(compiled, model)
    assert RuntimeSettings(share_execution_memory=True) == compiled.runtime_settings
    assert 0 == captured_by(compiled, model)


def test_what_cannot_be_set_is_refused(compiled, model):
    """Before the block, with the names that there are."""
    for value, changes, error, message in (
        (model, {}, InputError, "takes what torchtrt.compile"),
        (compiled, {"cuda_graph": True}, SettingsError, "Did you mean 'cuda_graphs'"),
        (compiled, {"cuda_graphs": "all"}, SettingsError, "'overwrite' or 'runtime'"),
        (compiled, {"cuda_graphs": "runtime"}, SettingsError, "TensorRT for RTX"),
    ):
        with pytest.raises(error, match=message), torchtrt.runtime_settings(value, **changes):
            pass
    assert RuntimeSettings() == compiled.runtime_settings


def test_settings_that_only_calls_have_are_listed():
    """``torchtrt.compile`` refers to ``torchtrt.runtime_settings`` for each of them."""
    of_compilations = {field.name for field in fields(torchtrt.CompilationSettings)}
    names = {field.name for field in fields(RuntimeSettings)}
    assert (
        names - of_compilations - {"cache"} == OF_CALLS
    )  # a compilation names that one runtime_cache


def test_what_inductor_compiled_stays_compiled(model):
    """It runs inside of what is captured, and alone afterwards."""
    inputs = [torch.randn(2, 4), torch.randn(3)]
    compiled = torchtrt.compile(model, inputs, dryrun=True, inductor=True)
    inside = compiled.executor
    with torchtrt.runtime_settings(compiled, cuda_graphs=True):
        assert inside is compiled.executor.inner
    assert inside is compiled.executor
