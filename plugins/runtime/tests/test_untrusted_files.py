"""Files that somebody made to do harm: they call nothing but ops on tensors, and compute no immense numbers."""

from __future__ import annotations

import json
import zipfile

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import UnreadableFileError, UnsupportedProgramError
from torchtrt_runtime import inspect_file
from torchtrt_runtime.call_safety import reason_against
from torchtrt_runtime.serialization.file_safety import check_program
from torchtrt_runtime.weights.recipe import Recipe

X = torch.rand(3, 3)
PROGRAM, METADATA = "models/model.json", "extra/torchtrt.json"
SIZE = "Symbol('s77', positive=True, integer=True)"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The file of a model with branches, which PyTorch runs."""

    class Model(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, torch.linalg.svdvals, lambda x: x.amax(1), (x,))

    path = tmp_path_factory.mktemp("saved") / "model.pt2"
    ops = {"higher_order.cond"}
    compiled = torchtrt.compile(Model().eval(), [X], min_block_size=1, torch_executed_ops=ops)
    torchtrt.save(compiled, path)
    torch.testing.assert_close(torchtrt.load(path)(X), torch.linalg.svdvals(X))
    return path


def rewritten(path, target, record, change):
    """Returns a file in which a record of JSON is changed."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as made:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith(record):
                data = json.dumps(change(json.loads(data))).encode()
            made.writestr(info.filename, data)
    return target


def calls_in(data):
    """Yields the calls in a program's graphs, those of branches included."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "target" in value and "inputs" in value:
                yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def replacing(target, inputs, old):
    """Returns a change of a program: another call in place of an old one."""

    def change(data):
        (call,) = (node for node in calls_in(data) if node["target"] == old)
        call["target"] = target
        call["inputs"] = [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs]
        return data

    return change


BRANCH = "torch.ops.aten.linalg_svdvals.default"
WHOLE = "torch.ops.higher_order.cond"


@pytest.mark.parametrize("old", [BRANCH, WHOLE])
def test_a_call_that_writes_a_file_is_refused(path, tmp_path, old):
    """In the graph, and in a branch."""
    mark = tmp_path / "mark"
    target = "torch.ops.aten.from_file.default"
    inputs = [
        ("filename", {"as_string": str(mark)}),
        ("shared", {"as_bool": True}),
        ("size", {"as_int": 9}),
    ]
    evil = rewritten(path, tmp_path / "evil.pt2", PROGRAM, replacing(target, inputs, old))

    with pytest.raises(
        UnreadableFileError, match=r"calls aten\.from_file\.default, which reads or writes a file"
    ):
        torchtrt.load(evil)(X)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("torch.hub.os.mkdir", [{"as_string": "mark"}], r"'torch\.hub\.os\.mkdir' for an op"),
        (
            "torch.ops.aten.from_file.default",
            [{"as_string": "mark"}, {"as_bool": True}, {"as_int": 9}],
            r"strict_mode with aten\.from_file\.default, which reads or writes a file",
        ),
    ],
)
def test_a_function_that_an_op_would_call_is_refused(
    path, tmp_path, monkeypatch, function, arguments, message
):
    """PyTorch's reader finds any function for an op on graphs."""
    monkeypatch.chdir(tmp_path)
    inputs = [("", {"as_operator": function}), *(("", argument) for argument in arguments)]
    change = replacing("torch.ops.higher_order.strict_mode", inputs, WHOLE)
    evil = rewritten(path, tmp_path / "evil.pt2", PROGRAM, change)

    with pytest.raises(UnreadableFileError, match=message):
        torchtrt.load(evil)(X)
    assert not (tmp_path / "mark").exists()


def test_a_step_that_would_write_a_file_is_refused():
    """Refitting repeats the steps from the model's weights to those of engines."""
    step = ["aten.from_file.default", ["mark", True, 9], {"dict": {}}, [0]]

    with pytest.raises(UnreadableFileError, match=r"aten\.from_file\.default, which is no op on"):
        Recipe({}, {}, [step], {"w": 0}).run({}.__getitem__, "a test")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("aten.save", "reads or writes a file"),
        ("aten.from_file", "reads or writes a file"),
        ("aten.warn", "does more than compute"),
        ("debugprims.load_tensor", "does more than compute"),
        ("prim.RaiseException", "does more than compute"),
        ("inductor._reinterpret_tensor", "does more than compute"),
        ("aten.tanh", None),
        ("aten.einsum", None),
        ("prims.convert_element_type", None),
        ("_c10d_functional.all_reduce", None),
    ],
)
def test_ops_that_reach_out_of_the_model_are_refused(name, reason):
    """Others are accepted, such as those with text that is no path."""
    namespace, packet = name.split(".")
    actual = reason_against(getattr(getattr(torch.ops, namespace), packet).default)

    assert actual is None if reason is None else actual.startswith(reason)


def test_a_model_that_reads_a_file_is_not_saved(tmp_path):
    """The error has the op: the file could not be loaded."""

    @torch.library.custom_op("untrusted::read", mutates_args=())
    def read(x: torch.Tensor, path: str) -> torch.Tensor:
        return x.clone()

    read.register_fake(lambda x, path: torch.empty_like(x))

    class Model(nn.Module):
        def forward(self, x):
            return torch.ops.untrusted.read(x * 2, "numbers") * 2

    compiled = torchtrt.compile(Model().eval(), [X], min_block_size=1)
    with pytest.raises(
        UnsupportedProgramError, match=r"calls untrusted\.read\.default, which reads"
    ):
        torchtrt.save(compiled, tmp_path / "model.pt2")


@pytest.mark.parametrize(
    "text",
    [
        "Pow(Integer(9), Integer(1000000000))",
        f"Pow({SIZE}, Integer(10000000000))",
        "Pow(Pow(Integer(2), Integer(4096)), Integer(4096))",
        "LShift(Integer(1), Integer(1000000000000))",
        "Pow(Rational(1, 3), Integer(1000000000))",
        f"Pow(Integer(9), Add({SIZE}, Mul(Integer(-1), {SIZE}), Integer(387420489)))",
    ],
)
def test_a_size_with_an_immense_number_is_refused(text):
    """Computing it would take all memory, or all time."""
    with pytest.raises(UnreadableFileError, match="a number that is too large"):
        check_program({"expr_str": text})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "__import__('os').system('ls')",
            "Symbol.mro()",
            "Integer(9).__class__",
            "s77",
            "lambda: 0",
        ),
        *(
            "S('x')",
            "Function('f')(Integer(1))",
            "sympify('x')",
            "eval('1')",
            "Lambda(1)",
            "open('f')",
        ),
        *("Symbol('x y')", "Symbol('s1', cls=Integer)", "Symbol('s1', 's2')", "Symbol(Integer(1))"),
        *("Integer('9')", "Integer(9**9)", "Integer(1.5)", "Integer(True)", "Integer(1, 2)", "9"),
        *(
            "Float('1.5', precision=1000000000)",
            "Float('1.5')",
            "Float(1, 53)",
            "Float('x', precision=53)",
        ),
        *("Add(*[Integer(1)])", "Add(**{})", "Add(Integer(1), evaluate=False)", "Add"),
        *("FloorDiv(Integer(1), Integer(2)).args", "[Integer(1)]", "Integer(1) + Integer(2)", ""),
        *(
            "OpaqueUnaryFn_sqrt(Integer(4))",
            "BitwiseFn_bitwise_and(Integer(4), Integer(2))",
            "oo",
            "nan",
        ),
        "Piecewise(ExprCondPair(Integer(4), true))",
        "FloorDiv(" * 250 + SIZE + ", Integer(2))" * 250,
        "Add(" + "-" * 10**5 + "1)",
        "(" * 10**5,
    ],
    ids=lambda text: text[:40],
)
def test_a_text_that_is_more_than_a_size_is_refused(text):
    """PyTorch's reader evaluates it as Python."""
    with pytest.raises(UnreadableFileError, match="for a size, which is code"):
        check_program({"expr_str": text})


@pytest.mark.parametrize(
    "data",
    [
        {"range_constraints": {"u999999999999": {}}},
        {"range_constraints": {"__import__('os')": {}}},
        {"expr_str": {"1": "__import__('os')"}},
        {"expr_str": [{"1": "__import__('os')"}]},
        {"name": {"1": "x\n"}},
    ],
    ids=str,
)
def test_other_parts_with_code_or_immense_numbers_are_refused(data):
    """PyTorch's reader counts up to the number of a symbol, and SymPy evaluates texts in any container."""
    with pytest.raises(UnreadableFileError):
        check_program(data)


@pytest.mark.parametrize(
    "text",
    [
        f"Add(Pow({SIZE}, Integer(2)), Mul(Integer(4), Symbol('u1', integer=True)), Integer(-1))",
        f"Pow(Integer(2), Add({SIZE}, Integer(100)))",
        "Pow(Symbol('zf1'), Rational(1, 2))",
        f"LessThan(FloatPow(ToFloat({SIZE}), Float('0.5', precision=53)), Float('1e308', precision=53))",
        f"Where(StrictLessThan({SIZE}, Integer(9223372036854775807)), Integer(1), Integer(0))",
        "Max(" + ", ".join([SIZE] * 1000) + ")",
        "true",
    ],
)
def test_usual_sizes_are_accepted(text):
    """Powers of usual numbers, and long expressions."""
    check_program({"expr_str": text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("operators", None),
        ("operators", 5),
        ("inputs", []),
        ("shared_inputs", "zz"),
        ("shared_inputs", [7]),
        ("processes", 5),
        ("report", 5),
        ("torch", ...),
    ],
)
def test_metadata_of_another_form_are_an_error_of_the_file(path, tmp_path, name, value):
    """Not one of Python's; ``...`` stands for nothing."""

    def change(data):
        data[name] = value
        if value is ...:
            del data[name]
            data["input_tree"] = None
        return data

    with pytest.raises(UnreadableFileError):
        torchtrt.load(rewritten(path, tmp_path / "model.pt2", METADATA, change))


def test_a_file_that_cannot_be_inspected_is_an_error_of_the_file(path, tmp_path):
    """As when it is loaded."""
    file = rewritten(path, tmp_path / "model.pt2", METADATA, lambda _: {"format": 1})

    with pytest.raises(UnreadableFileError, match="KeyError"):
        inspect_file(file)
