"""Saved models: what is written, read again by torchtrt and by PyTorch, computes what was compiled."""

from __future__ import annotations

import copy
import enum
import errno
import io
import os
import pickle
import zipfile
from collections import OrderedDict, defaultdict, deque, namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torchtrt
from torchtrt.errors import (
    EngineError,
    InputError,
    UnreadableFileError,
    UnsupportedProgramError,
    UnwritableFileError,
)


def function(call, **tensors):
    """Returns a module of a function whose first argument is the module, with buffers."""

    class Model(nn.Module):
        def forward(self, *args, **kwargs):
            return call(self, *args, **kwargs)

    class OneInput(nn.Module):
        def forward(self, x):
            return call(self, x)

    class TwoInputs(nn.Module):
        def forward(self, x, y):
            return call(self, x, y)

    count = call.__code__.co_argcount - 1
    model = {1: OneInput, 2: TwoInputs}.get(count, Model)()
    for name, tensor in tensors.items():
        model.register_buffer(name, tensor)
    return model.eval()


class Pair(NamedTuple):
    """A named tuple that PyTorch does not know."""

    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Result:
    """A dataclass of two tensors."""

    total: torch.Tensor
    rest: list[torch.Tensor]


torch.export.register_dataclass(Result, serialized_type_name="test_saving.Result")

SVD = torch.linalg.svdvals  # PyTorch's, whichever pack is installed

VARYING = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(16, 6))
MANY = (torch.arange(30.0).reshape(5, 6), torch.rand(1, 6), torch.rand(16, 6))


def accumulate(model, x):
    """Returns the sum so far."""
    model.total.add_(x.sum(0))
    return model.total * 2, x @ model.total


def write_input(model, x, y):
    """Writes to its first input."""
    x.mul_(y)
    return x + y


MODELS = {
    "an engine": (lambda: function(lambda m, x: torch.relu(x * 2) + 1), [VARYING], MANY),
    "PyTorch between engines": (
        lambda: function(
            lambda m, x: (SVD(x.exp() + m.w) * m.w[:1, :5]).sin() + 1, w=torch.rand(5, 6)
        ),
        [torch.rand(5, 6)],
        (torch.rand(5, 6),),
    ),
    "PyTorch between engines, varying": (
        lambda: function(lambda m, x: SVD(x.exp() + 1).sin() + x.sum()),
        [VARYING],
        MANY,
    ),
    "PyTorch alone": (
        lambda: function(lambda m, x: SVD(x)),
        [torch.rand(3, 3)],
        (torch.rand(3, 3),),
    ),
    "sizes computed": (
        lambda: function(lambda m, x: x.reshape(-1).repeat(2)[: x.shape[0] * 3] + x.shape[0]),
        [VARYING],
        MANY,
    ),
    "sizes returned": (lambda: function(lambda m, x: (x * 2, x.shape[0])), [VARYING], MANY),
    "concatenated sizes": (
        lambda: function(lambda m, x, y: SVD(torch.cat([x, y]) + 1) * 2 + 1),
        [VARYING, torchtrt.Input(min_shape=(2, 6), opt_shape=(3, 6), max_shape=(9, 6))],
        tuple((x, torch.rand(3, 6)) for x in MANY),
    ),
    "sizes that depend on data": (
        lambda: function(
            lambda m, x: (SVD(x[x[:, 0] > 0.5].exp() + 1) * 2).sum() + x.nonzero()[:, 0]
        ),
        [torch.rand(5, 6)],
        (torch.rand(5, 6), torch.rand(5, 6)),
    ),
    "a write to a buffer": (
        lambda: function(accumulate, total=torch.zeros(6)),
        [VARYING],
        (torch.rand(3, 6), torch.rand(5, 6)),
    ),
    "a write to an input": (
        lambda: function(write_input),
        [torch.rand(4, 6), torch.rand(4, 6)],
        ((torch.rand(4, 6), torch.rand(4, 6)),),
    ),
    "containers": (
        lambda: function(
            lambda m, x, y: {
                "a": (x["b"] + 1, [y[0] * 2, None, 3]),
                "c": OrderedDict(d=y[1][0] - 1),
            }
        ),
        [{"b": torch.rand(3)}, (torch.rand(2), [torch.rand(4)])],
        (({"b": torch.rand(3)}, (torch.rand(2), [torch.rand(4)])),),
    ),
    "a dataclass": (
        lambda: function(lambda m, x: Result(x.sum(), [x + 1, x * 2])),
        [torch.rand(3)],
        (torch.rand(3),),
    ),
    "weights without names": (
        lambda: (
            nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Softplus(2.0), nn.Linear(4, 2)))
            .eval()
            .requires_grad_(False)
        ),
        [torch.rand(2, 3)],
        (torch.rand(2, 3),),
    ),
    "a view of an input": (
        lambda: function(lambda m, x: (x.t(), x + 1)),
        [torch.rand(3, 4)],
        (torch.rand(3, 4), torch.rand(4, 3).t()),
    ),
    "a constant result": (
        lambda: function(lambda m, x: (x + 1, m.w * 2, torch.ones(2)), w=torch.rand(3)),
        [torch.rand(3)],
        (torch.rand(3),),
    ),
    "numbers and flags": (
        lambda: function(lambda m, x, y: x * y[0] + (1 if y[1] else 2)),
        [torch.rand(3), (3, True)],
        ((torch.rand(3), (3, True)),),
    ),
    "an empty input": (
        lambda: function(lambda m, x: (x + 1, x.sum())),
        [torch.empty(0, 3)],
        (torch.empty(0, 3),),
    ),
    "a branch": (
        lambda: function(
            lambda m, x: torch.cond(x.sum() > 3, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))
        ),
        [torch.rand(3)],
        (torch.rand(3), torch.rand(3) * 9),
    ),
    "a branch in PyTorch": (
        lambda: function(
            lambda m, x: torch.cond(x.sum() > 3, lambda x: SVD(x) + 1, lambda x: SVD(x) * 2, (x,))
        ),
        [torch.rand(3, 3)],
        (torch.rand(3, 3), torch.rand(3, 3) * 9),
    ),
    **{
        f"{dtype}".removeprefix("torch."): (
            lambda: function(lambda m, x: x + x.flip(0)),
            [torch.ones(3, dtype=dtype)],
            (torch.tensor([1, 0, 3]).to(dtype),),
        )
        for dtype in (
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.int64,
            torch.int32,
            torch.uint8,
        )
    },
    "bool": (
        lambda: function(lambda m, x: x & x.flip(0)),
        [torch.tensor([True, False])],
        (torch.tensor([True, True]),),
    ),
    "complex": (
        lambda: function(lambda m, x: (x * m.w).real + 1, w=torch.rand(3, dtype=torch.complex64)),
        [torch.rand(3, dtype=torch.complex64)],
        (torch.rand(3, dtype=torch.complex64),),
    ),
}


def same(expected: Any, actual: Any) -> None:
    """Compares nested results, their types included."""
    assert type(expected) is type(actual)
    if isinstance(expected, Result):
        expected, actual = vars(expected), vars(actual)
    if isinstance(expected, (list, tuple)):
        assert len(expected) == len(actual)
        for pair in zip(expected, actual, strict=True):
            same(*pair)
    elif isinstance(expected, dict):
        assert list(expected) == list(actual)
        for key in expected:
            same(expected[key], actual[key])
    elif isinstance(expected, torch.Tensor):
        assert expected.dtype is actual.dtype
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    else:
        assert expected == actual


def saved(model, inputs, tmp_path, **settings):
    """Returns the path of a compiled model."""
    compiled = torchtrt.compile(model, inputs, min_block_size=1, **settings)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def arguments(call):
    """Returns copies of the arguments of one call."""
    return copy.deepcopy(call if isinstance(call, tuple) else (call,))


@pytest.mark.filterwarnings(
    "ignore::torchtrt.errors.SettingsWarning"
)  # one list for several models
@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")  # of dtypes that 8.6 lacks
@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("executed", ["", "aten.linear aten.add aten.mul aten.mm"])
def test_a_saved_model_computes_what_the_model_does(case, executed, tmp_path, every_tensorrt):
    """Read by torchtrt and by PyTorch, called again and again, it returns and writes what eager PyTorch does."""
    make, inputs, calls = MODELS[case]
    model = make()
    path = saved(model, copy.deepcopy(inputs), tmp_path, torch_executed_ops=executed.split())

    for loaded in (torchtrt.load(path), torch.export.load(path).module()):
        eager = copy.deepcopy(model)
        results = []
        for call in (*calls, *calls):
            expected_args, actual_args = arguments(call), arguments(call)
            expected, actual = eager(*expected_args), loaded(*actual_args)
            same(expected, actual)
            same(expected_args, actual_args)
            results.append((expected, actual))
        for expected, actual in results:  # what was returned stays as it was
            same(expected, actual)
        for name, buffer in eager.named_buffers():
            if hasattr(loaded, "graph_module") and hasattr(loaded.graph_module, name):
                same(buffer, getattr(loaded.graph_module, name))


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
    sizes = torchtrt.Input(min_shape=(4,), opt_shape=(8,), max_shape=(16,))
    path = saved(
        model, [sizes, torchtrt.Input(min_shape=(3,), opt_shape=(5,), max_shape=(9,))], tmp_path
    )
    loaded = torchtrt.load(path)

    same(model(torch.rand(12), torch.ones(7))[1], loaded(torch.rand(12), torch.ones(7))[1])
    with pytest.raises(InputError):
        loaded(torch.rand(10), torch.ones(7))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
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


class Level(enum.Enum):
    """Keys of a dictionary."""

    LOW = 0
    HIGH = 1


@pytest.mark.parametrize(
    "nest",
    [
        lambda m, x: Pair(x + 1, x),
        lambda m, x: {"a": [Pair(x + 1, (x, Pair(x, x * 2)))]},
        lambda m, x: torch.max(x, 0),
        lambda m, x: (x.sort(), {"top": x.topk(2)}),
        lambda m, x: OrderedDict(b=x, a=x + 1),
        lambda m, x: defaultdict(list, {1: x, 2.5: [x]}),
        lambda m, x: deque([x, x + 1], maxlen=5),
        lambda m, x: {Level.LOW: x, Level.HIGH: x + 1},
        lambda m, x: {None: x, True: x + 1, "1": x, 3: x},
        lambda m, x: (x, 3, 2.5, True, None, x.shape[0]),
    ],
)
def test_a_loaded_model_returns_the_containers_that_the_model_does(nest, tmp_path):
    """Named tuples by their fields; for PyTorch they are tuples."""
    model, x = function(nest), torch.rand(3)
    path = saved(model, [x], tmp_path)
    expected, actual = model(x), torchtrt.load(path)(x)

    assert pytree.tree_structure(expected) == pytree.tree_structure(actual)
    torch.testing.assert_close(pytree.tree_leaves(actual), pytree.tree_leaves(expected))
    assert type(expected) is type(actual)
    assert len(pytree.tree_leaves(expected)) == len(
        pytree.tree_leaves(torch.export.load(path).module()(x))
    )


def test_a_model_takes_named_tuples(tmp_path):
    """As arguments, too."""
    model = function(lambda m, pair: pair.first + pair.second)
    pair = Pair(torch.rand(3), torch.rand(3))
    path = saved(model, [pair], tmp_path)

    torch.testing.assert_close(torchtrt.load(path)(pair), model(pair))


def test_a_container_of_a_library_that_is_not_imported_is_an_error_that_names_it(tmp_path, fresh):
    """As the outputs of transformers are."""
    pytest.importorskip("transformers")
    from transformers.modeling_outputs import BaseModelOutput

    model = function(lambda m, x: BaseModelOutput(last_hidden_state=x + 1))
    path = saved(model, [torch.rand(3)], tmp_path)
    code = (
        "import sys, torchtrt\n"
        "try: torchtrt.load(sys.argv[1])\n"
        "except torchtrt.errors.UnreadableFileError as error: print(error)"
    )

    assert "transformers.modeling_outputs.BaseModelOutput" in fresh(code, path)


def test_a_named_tuple_of_a_module_that_is_not_imported_is_an_error_that_names_it(tmp_path, fresh):
    """Loading imports nothing."""
    path = saved(function(lambda m, x: Pair(x + 1, x)), [torch.rand(3)], tmp_path)
    code = (
        "import sys, torchtrt\n"
        "try: torchtrt.load(sys.argv[1])\n"
        "except torchtrt.errors.UnreadableFileError as error: print(error)"
    )

    assert fresh(code, path).startswith(
        f"The model takes or returns the named tuple '{__name__}:Pair', which is not known here."
    )


class Local:
    """Where the name of a named tuple does not lead to it."""

    Pair = namedtuple("Hidden", ["first", "second"])


@pytest.mark.parametrize(
    ("nest", "message"),
    [
        (lambda m, x: Local.Pair(x, x), "named tuple '.*Hidden', which nobody could find"),
        (lambda m, x: (x, "text"), "returns the text 'text', .* Return tensors and numbers"),
        (lambda m, x: {"a": {(1, 2): x}}, r"\(1, 2\).* Use tuples, lists, dictionaries whose keys"),
        (
            lambda m, x: {torch.float32: x},
            r"torch\.float32.* Use tuples, lists, dictionaries whose",
        ),
        (lambda m, x: defaultdict(OrderedDict, {1: x}), "defaultdict.* would import a module"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(nest, message, tmp_path):
    """The error says what to return instead."""
    with pytest.raises(UnsupportedProgramError, match=message):
        saved(function(nest), [torch.rand(3)], tmp_path)
    assert [] == list(tmp_path.iterdir())


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
        "assert 'torchtrt_compiler.compiler' not in sys.modules\n"
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
        for each in (compiled, torch.export.load(tmp_path / "outer.pt2").module()):
            same(inner(x), each(x))


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
    for each in (loaded, copy.deepcopy(loaded), pickled, again):
        with ThreadPoolExecutor(len(inputs)) as threads:
            same(expected, list(threads.map(each, inputs)))


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
    given = next(
        node.meta["val"]
        for node in again.graph.find_nodes(op="placeholder")
        if node.meta["val"].dtype is torch.float32
    )

    assert isinstance(size, torch.SymInt)
    assert result.meta["val"].shape[0].node.expr == given.shape[0].node.expr * 4
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
    """Nobody trains what was loaded, so its results do not require grad."""
    path = saved(nn.Linear(4, 2).eval(), [torch.rand(3, 4)], tmp_path)

    assert (3, 2) == torchtrt.load(path)(torch.rand(3, 4)).numpy().shape
