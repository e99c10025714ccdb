"""Saved models: what is written, where, and who reads it."""

from __future__ import annotations

import copy
import errno
import io
import os
import pickle
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.saved_models import SVD, VARYING, function, same, saved
from torchtrt.errors import (
    EngineError,
    InputError,
    UnreadableFileError,
    UnsupportedProgramError,
    UnwritableFileError,
)


def test_a_loaded_model_says_what_the_compiled_one_says(tmp_path):
    """Signature, checks, report and repeated saving survive."""

    class Model(nn.Module):
        def forward(self, x, scale=2.0, *, bias=None, mode="sum"):
            return x * scale + (0 if bias is None else bias)

    model = Model().eval()
    compiled = torchtrt.compile(
        model, [VARYING], kwarg_inputs={"bias": torch.rand(6)}, min_block_size=1
    )
    torchtrt.save(compiled, tmp_path / "once.pt2")
    torchtrt.save(torchtrt.load(tmp_path / "once.pt2"), tmp_path / "twice.pt2")
    loaded = torchtrt.load(tmp_path / "twice.pt2")
    x, bias = torch.rand(3, 6), torch.rand(6)

    assert compiled.report == loaded.report
    for call in (
        lambda model: model(x, bias=bias),
        lambda model: model(bias=bias, x=x),
        lambda model: model(x, 2.0, bias=bias, mode="sum"),
    ):
        same(compiled(x, bias=bias), call(loaded))
    for wrong in (
        lambda model: model(x, 3.0, bias=bias),
        lambda model: model(x),
        lambda model: model(torch.rand(17, 6), bias=bias),
        lambda model: model(x.double(), bias=bias),
        lambda model: model(torch.rand(3, 5), bias=bias),
        lambda model: model(x.to_sparse(), bias=bias),
        lambda model: model(x, bias=bias, mode="mean"),
    ):
        with pytest.raises(InputError) as expected:
            wrong(compiled)
        with pytest.raises(InputError) as actual:
            wrong(loaded)
        assert str(expected.value) == str(actual.value)
    with pytest.raises(EngineError, match="training mode"):
        loaded.train()
    with pytest.raises(EngineError, match="autocast"), torch.autocast("cpu"):
        loaded(x, bias=bias)
    with pytest.raises(EngineError, match="no gradients"):
        loaded(x.requires_grad_(), bias=bias).sum().backward()


def test_assumptions_about_sizes_are_checked_after_loading(tmp_path):
    """What the model was traced under holds in the file, too."""
    model = function(lambda m, x, y: (x.reshape(-1, 4) + 1, y[::2] * 2))
    sizes = torchtrt.Input(min_shape=(8,), opt_shape=(8,), max_shape=(16,))
    path = saved(
        model, [sizes, torchtrt.Input(min_shape=(3,), opt_shape=(5,), max_shape=(9,))], tmp_path
    )
    loaded = torchtrt.load(path)

    same(model(torch.rand(12), torch.ones(7))[1], loaded(torch.rand(12), torch.ones(7))[1])
    with pytest.raises(InputError):
        loaded(torch.rand(10), torch.ones(7))


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda model: torch.jit.trace(model, torch.rand(3, 4))]
)
def test_a_torchscript_model_is_saved(make, tmp_path, every_tensorrt):
    """All front ends end in the same kind of compiled model."""
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    path = saved(make(model), [torch.rand(3, 4)], tmp_path)
    x = torch.rand(3, 4)

    same(model(x).detach(), torchtrt.load(path)(x).detach())


def test_a_model_is_saved_to_and_read_from_any_stream():
    """Bytes in memory will do."""
    stream = io.BytesIO()
    model = function(lambda m, x: x + 1)
    torchtrt.save(torchtrt.compile(model, [torch.rand(3)], min_block_size=1), stream)
    stream.seek(0)

    same(torch.ones(3), torchtrt.load(stream)(torch.zeros(3)))


def test_a_dry_run_has_nothing_to_save(tmp_path):
    """The error says what to do."""
    compiled = torchtrt.compile(
        function(lambda m, x: x + 1), [torch.rand(3)], min_block_size=1, dryrun=True
    )

    with pytest.raises(UnsupportedProgramError, match="without dryrun"):
        torchtrt.save(compiled, tmp_path / "model.pt2")
    assert [] == list(tmp_path.iterdir())
    with pytest.raises(InputError, match="not a Linear"):
        torchtrt.save(nn.Linear(2, 2), tmp_path / "model.pt2")


def test_a_place_that_cannot_be_written_is_an_error_that_names_it(tmp_path, monkeypatch):
    """A folder, a folder that is not there, one that is read-only, and a full disk."""
    compiled = torchtrt.compile(function(lambda m, x: x + 1), [torch.rand(3)], min_block_size=1)
    with pytest.raises(UnwritableFileError, match=f"^{tmp_path} is a folder. Name a file in it"):
        torchtrt.save(compiled, tmp_path)
    with pytest.raises(UnwritableFileError, match=f"^There is no folder {tmp_path}/a for b.pt2"):
        torchtrt.save(compiled, tmp_path / "a" / "b.pt2")
    with pytest.raises(UnwritableFileError, match="is no path: it has a NUL character"):
        torchtrt.save(compiled, tmp_path / "a\0b.pt2")
    with pytest.raises(UnreadableFileError, match="There is no file"):
        torchtrt.load(tmp_path / "a\0b.pt2")

    for number in (errno.EROFS, errno.ENOSPC, errno.EACCES):
        with monkeypatch.context() as patch:

            def refuse(*_, number=number, **__):
                raise OSError(number, os.strerror(number))

            patch.setattr("os.replace" if number == errno.ENOSPC else "tempfile.mkdtemp", refuse)
            match = f"^{tmp_path}/b.pt2 cannot be written: {os.strerror(number)}. Make room"
            with pytest.raises(UnwritableFileError, match=match):
                torchtrt.save(compiled, tmp_path / "b.pt2")
    assert [] == list(tmp_path.iterdir())


def test_a_file_replaces_another_whole_or_not_at_all(tmp_path):
    """A model that cannot be saved leaves the file that was there."""
    path = saved(function(lambda m, x: x + 1), [torch.rand(3)], tmp_path)
    before = path.read_bytes()

    with pytest.raises(UnsupportedProgramError):
        saved(function(lambda m, x: (x + 1, "text")), [torch.rand(3)], tmp_path)
    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def test_a_fresh_process_needs_neither_the_models_code_nor_a_compiler(tmp_path, fresh):
    """Both ways of loading run without importing what compiles."""
    model = function(lambda m, x: SVD(x + m.w) * 2, w=torch.rand(3, 3))
    path = saved(model, [torch.rand(3, 3)], tmp_path)
    torch.save(x := torch.rand(3, 3), tmp_path / "x.pt")

    code = (
        "import sys, torch, torchtrt; path = sys.argv[1]; x = torch.load(sys.argv[2])\n"
        "first, second = torchtrt.load(path)(x), torch.export.load(path).module()(x)\n"
        "assert torch.equal(first, second)\n"
        "assert 'torchtrt_compiler.api' not in sys.modules\n"
        "print(first.tolist())"
    )
    assert model(x).tolist() == pytest.approx(eval(fresh(code, path, tmp_path / "x.pt")), rel=1e-4)


def test_a_model_with_a_saved_one_inside_is_saved(tmp_path):
    """The engines of the one inside stay calls of the operator, whose constants have the names of our own."""
    torch.manual_seed(0)
    inner, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval(), torch.rand(2, 4)
    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.relu"}}
    torchtrt.save(torchtrt.compile(inner, [x], **settings), tmp_path / "inner.pt2")
    program = torch.export.load(tmp_path / "inner.pt2")
    compiled = torchtrt.compile(program, min_block_size=1)
    assert compiled.report.blocks
    for _ in range(2):
        torchtrt.save(compiled, tmp_path / "outer.pt2")
        compiled = torchtrt.load(tmp_path / "outer.pt2")
        for module in (compiled, torch.export.load(tmp_path / "outer.pt2").module()):
            same(inner(x), module(x))


def test_what_was_pickled_says_why_it_is_not_saved(tmp_path):
    """A pickle keeps no shapes and dtypes of what is between."""
    compiled = torchtrt.compile(nn.ReLU().eval(), [torch.rand(3)], min_block_size=1)

    with pytest.raises(UnsupportedProgramError, match="in the place of the pickle"):
        torchtrt.save(pickle.loads(pickle.dumps(compiled)), tmp_path / "model.pt2")


@pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")  # PyTorch's, in copying
def test_a_loaded_model_is_copied_pickled_and_called_by_threads(tmp_path):
    """It is a compiled model like any other."""
    model = function(lambda m, x: SVD(x + m.w) * 2 + 1, w=torch.rand(3, 3))
    loaded = torchtrt.load(saved(model, [torch.rand(3, 3)], tmp_path))
    again = torch.export.load(tmp_path / "model.pt2").module()
    inputs = [torch.rand(3, 3) for _ in range(16)]
    expected = [model(x) for x in inputs]
    pickled = pickle.loads(pickle.dumps(loaded))
    for module in (loaded, copy.deepcopy(loaded), pickled, again):
        with ThreadPoolExecutor(len(inputs)) as threads:
            same(expected, list(threads.map(module, inputs)))


def test_a_loaded_model_is_called_by_forks(tmp_path):
    """Its engines, and what is in PyTorch: nothing that MKL computes, whose memory does not survive a fork."""
    model = function(lambda m, x: (x + m.w).cummax(0).values * 2 + 1, w=torch.rand(3, 3))
    x = torch.rand(3, 3)
    path = saved(model, [x], tmp_path, torch_executed_ops={"aten.cummax"})
    loaded, expected = torchtrt.load(path), model(x)
    assert loaded.report.blocks
    assert loaded.report.in_torch
    process = os.fork()
    if not process:
        os._exit(0 if torch.allclose(loaded(x), expected, rtol=1e-4) else 1)
    assert 0 == os.waitpid(process, 0)[1]


def test_shared_and_expanded_weights_take_their_memory_once(tmp_path):
    """Views of one storage are written as far as it is used, and are views again."""
    large = torch.rand(1000, 1000)
    model = function(
        lambda m, x: SVD(x + m.a) + SVD(x + m.b) + SVD(x + m.c),
        a=large[:3, :3],
        b=large[1:4, :3],
        c=torch.rand(1, 3).expand(3, 3),
    )
    path = saved(
        model, [torch.rand(3, 3)], tmp_path, torch_executed_ops={"aten.add", "aten.linalg_svdvals"}
    )
    loaded = torchtrt.load(path)
    x = torch.rand(3, 3)

    same(model(x), loaded(x))
    same(model(x), torch.export.load(path).module()(x))
    assert path.stat().st_size < 100_000
    assert loaded.graph_module.a.untyped_storage().data_ptr() == (
        loaded.graph_module.b.untyped_storage().data_ptr()
    )


def test_a_saved_program_is_compiled_by_pytorch_in_turn(tmp_path):
    """The operator's fake kernel gives the sizes of its results as expressions of its inputs'."""
    model = function(lambda m, x: torch.cat([x, x * 2]).reshape(-1, 3)[:, None] + 1)
    path = saved(model, [VARYING], tmp_path)
    program = torch.export.load(path)
    (size,) = program.graph_module.graph.find_nodes(op="placeholder")[1].meta["val"].shape[:1]

    again = torch.export.export(
        program.module(),
        (torch.rand(5, 6),),
        dynamic_shapes=({0: torch.export.Dim("n", min=2, max=16)},),
    )
    (result,) = again.graph_module.graph.find_nodes(op="output")[0].args[0]
    input_ = next(
        node.meta["val"]
        for node in again.graph.find_nodes(op="placeholder")
        if node.meta["val"].dtype is torch.float32
    )

    assert isinstance(size, torch.SymInt)
    assert result.meta["val"].shape[0].node.expr == input_.shape[0].node.expr * 4
    same(model(torch.ones(7, 6)), again.module()(torch.ones(7, 6)))


def test_the_operator_passes_pytorchs_own_checks(tmp_path):
    """Schema, fake kernel and autograd registration agree with what the operator does."""
    saved(function(lambda m, x: torch.cat([x, x * 2])), [VARYING], tmp_path)
    program = torch.export.load(tmp_path / "model.pt2")
    (call,) = (
        node
        for node in program.graph.nodes
        if node.target is torch.ops.torchtrt.execute_engine.default
    )
    (plan,) = program.constants.values()

    torch.library.opcheck(
        torch.ops.torchtrt.execute_engine.default,
        ([torch.rand(3, 6)], plan, call.args[2]),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


def test_reading_and_writing_hold_one_copy_of_the_weights(tmp_path, fresh):
    """The highest memory of a process is the file's size, and at most a tenth of it more, over PyTorch's own."""
    path = tmp_path / "model.pt2"
    code = (
        "import re, sys, torch, torchtrt\n"
        "def memory(what): return int(re.search(what + r':\\s+(\\d+)', open('/proc/self/status').read())[1]) * 1024\n"
        "if sys.argv[1] == 'make':\n"
        "    model = torch.nn.Sequential(*(torch.nn.Linear(2000, 2000) for _ in range(12))).eval()\n"
        "    torchtrt.save(torchtrt.compile(model, [torch.rand(1, 2000)]), sys.argv[2])\n"
        "else:\n"
        "    small = torchtrt.compile(torch.nn.Linear(2, 2).eval(), [torch.rand(1, 2)], min_block_size=1)\n"
        "    torchtrt.save(small, sys.argv[3]); torchtrt.load(sys.argv[3])(torch.rand(1, 2))\n"
        "    open('/proc/self/clear_refs', 'w').write('5'); before = memory('VmRSS')\n"
        "    loaded = torchtrt.load(sys.argv[2]); print(memory('VmHWM') - before)\n"
        "    loaded(torch.rand(1, 2000)); torchtrt.save(loaded, sys.argv[3]); print(memory('VmHWM') - before)\n"
    )
    fresh(code, "make", path)
    size = path.stat().st_size
    reading, writing = map(int, fresh(code, "use", path, tmp_path / "other.pt2").split())

    assert 190e6 < size
    assert 0.9 * size < reading < 1.1 * size
    assert writing < 1.1 * size
    assert zipfile.ZipFile(path).testzip() is None
    assert abs(size - Path(tmp_path / "other.pt2").stat().st_size) < 1000


def test_results_of_a_loaded_model_become_arrays(tmp_path):
    """What was loaded is not trained, so its results do not require grad."""
    path = saved(nn.Linear(4, 2).eval(), [torch.rand(3, 4)], tmp_path)

    assert (3, 2) == torchtrt.load(path)(torch.rand(3, 4)).numpy().shape


def test_a_sparse_weight_outside_of_engines_is_not_saved(tmp_path):
    """The error names the weight and its layout."""

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("edges", torch.eye(4).to_sparse())

        def forward(self, x):
            return torch.sparse.mm(self.edges, x * 2)

    with pytest.raises(UnsupportedProgramError, match=r"'edges' is a Tensor of the layout"):
        saved(Graph().eval(), [torch.rand(4, 2)], tmp_path)
