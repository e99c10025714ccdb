"""The error for what cannot be compiled names the construct of the model and its line, in words about the model."""

import importlib.util
import re

import pytest
import torch

import torchtrt_torchscript as torchscript
from tests.support.versions import since
from torchtrt.errors import ExportError, InputError

from .helpers import quiet, script

X = torch.arange(12.0).reshape(3, 4)
BATCH = ({0: torch.export.Dim("batch", min=2, max=8)},)
OUT_OF_RANGE = "a row that is not there"
BY_DATA = {
    "an element of a list": ("a = [1, 2, 3]", "return x * a[int(x.sum())]", "aten::__getitem__"),
    "a list of n": ("a = [1]", "return x * len(a * int(x.sum()))", "aten::mul"),
    "a search": ("n = int(x.sum())", "return x if n in [1, 2] else x * 2", "aten::__contains__"),
    "equal lists": ("n = int(x.sum())", "return x if [n] == [1] else x * 2", "aten::eq"),
    "a key": ("a = {1: 2}", "return x * a[int(x.sum())]", "aten::__getitem__"),
    "text": ("n = int(x.sum())", "return x * len(str(n))", "aten::str"),
    "a format": ("n = float(x.sum())", "return x * len('{}'.format(n))", "aten::format"),
    "a percent format": ("n = int(x.sum())", "return x * len('%d' % n)", "aten::percentFormat"),
    "sorting": ("a = [int(x.sum()), 1]", "return x * sorted(a)[0]", "aten::sorted"),
    "a dimension": ("n = int(x.sum())", "return x.sum(n % 2)", "aten::sum"),
    "turned dimensions": ("n = int(x.sum())", "return x.transpose(0, n)", "aten::transpose"),
    "a list that grows": (
        "a = [i for i in range(int(x.sum()))]",
        "return x * len(a)",
        "prim::Loop",
    ),
    "a branch that makes text": (
        "s = 'a' if bool(x.sum() > 0) else 'bb'",
        "return x * len(s)",
        "prim::If",
    ),
    "a branch that makes a tuple": (
        "p = (x, x) if bool(x.sum() > 0) else (x, x * 2)",
        "return p[0]",
        "prim::If",
    ),
    "other shapes": ("y = x if bool(x.sum() > 0) else x[0]", "return y", "prim::If"),
    "other dtypes": ("y = x if bool(x.sum() > 0) else x.int()", "return y", "prim::If"),
    "numbers of a tensor": ("a: List[float] = x[0].tolist()", "return x * a[0]", "prim::tolist"),
    "a shape that does not fit": ("y = x", "return y.view(5, 7)", "aten::view"),
    "factors that do not fit": ("y = x", "return y @ x", "aten::matmul"),
    OUT_OF_RANGE: ("y = x", "return y[7]", "aten::select"),
}
BY_SIZE = {
    "text": ("n = x.size(0)", "return x * len(str(n))", "aten::str"),
    "a list of n": ("a = [1]", "return x * len(a * x.size(0))", "aten::mul"),
    "an element of a list": (
        "a = [1, 2, 3, 4, 5]",
        "return x * a[x.size(0) - 1]",
        "aten::__getitem__",
    ),
    "a search": ("n = x.size(0)", "return x if n in [1, 2] else x * 2", "aten::__contains__"),
    "one shape": ("y = x", "return y.view(3, 4)", "aten::view"),
    "its rows": ("y = x", "return torch.cat(list(y.unbind(0)))", "aten::unbind"),
}
INTERNALS = "|".join(
    (
        r"Traceback|[gG]uard|SymNode|FakeTensor|site-packages|TORCH_LOGS|TORCHDYNAMO|torch\._",
        r"\bs\d+\b|\bz?u[f0]?\d+\b",
    )
)
"""What only people who write PyTorch know."""


def refusal_of(tmp_path, caplog, lines, shapes=None):
    """Returns the message with which a function of these lines is refused."""
    path = tmp_path / "model.py"
    head = "import torch\nfrom typing import List\nfrom torch import Tensor\n\n\ndef model(x: Tensor):\n"
    body = "".join(f"    {line}\n" for line in lines)
    path.write_text(head + body)
    spec = importlib.util.spec_from_file_location("model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(ExportError) as caught:
        torchscript.compile(script(module.model), (X,), dynamic_shapes=shapes, min_block_size=1)
    records = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [] == records
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in BY_DATA if name != OUT_OF_RANGE),
        pytest.param(OUT_OF_RANGE, marks=since("2.13", "accepts an index out of range")),
    ],
)
def test_what_would_have_to_know_data_names_itself_and_its_line(tmp_path, caplog, name):
    """And nothing of PyTorch's own code."""
    *lines, construct = BY_DATA[name]

    message = refusal_of(tmp_path, caplog, lines)

    assert construct in message
    assert any(line in message for line in lines), message
    assert not re.search(INTERNALS, message), message


@pytest.mark.parametrize("name", BY_SIZE)
def test_what_would_have_to_know_a_size_that_varies_names_itself_and_its_line(
    tmp_path, caplog, name
):
    """Instead of the constraint that it violates."""
    *lines, construct = BY_SIZE[name]

    message = refusal_of(tmp_path, caplog, lines, BATCH)

    assert construct in message
    assert any(line in message for line in lines), message
    assert not re.search(INTERNALS, message), message


def test_inputs_that_do_not_fit_are_told_what_the_model_takes():
    """Too many, too few, and names that it does not have."""

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    for args, kwargs in (((X, X, X), None), ((X,), None), ((X,), {"z": X})):
        with pytest.raises(InputError, match=r"which takes \(x, y\)"):
            torchscript.compile(script(add), args, kwarg_inputs=kwargs)


def test_inputs_of_a_graph_may_have_any_names():
    """Those that Python has no use for, or that two have, get others."""
    graph = torch._C.parse_ir(
        """graph(%x.1 : Tensor, %x.2 : Tensor, %self : Tensor, %lambda : Tensor):
  %one : int = prim::Constant[value=1]()
  %sum : Tensor = aten::add(%x.1, %x.2, %one)
  %product : Tensor = aten::mul(%sum, %self)
  %ratio : Tensor = aten::div(%product, %lambda)
  return (%ratio)"""
    )
    function = quiet(torch._C._create_function_from_graph, "function", graph)

    compiled = torchscript.compile(
        function, (X, X + 1, X + 2, X + 3), require_full_compilation=True
    )

    torch.testing.assert_close(compiled(X, X + 1, X + 2, X + 3), function(X, X + 1, X + 2, X + 3))
