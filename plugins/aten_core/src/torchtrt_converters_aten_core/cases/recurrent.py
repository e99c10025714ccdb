"""Cases of recurrent layers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from torchtrt_testing.cases import OpCase, decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

F16 = torch.float16
MODES: dict[str, Callable[..., nn.Module]] = {
    "lstm.input": nn.LSTM,
    "gru.input": nn.GRU,
    "rnn_tanh.input": nn.RNN,
    "rnn_relu.input": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}
PARTS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def layer(op: str, *args: Any, **options: Any) -> Callable[..., Any]:
    """Returns a call of a module with random weights."""
    torch.manual_seed(0)
    module = MODES[op](*args, **options).eval()

    def call(x: torch.Tensor, *states: torch.Tensor) -> Any:
        if len(states) == 2:
            return module(x, states)
        return module(x, *states)

    return call


def of(
    op: str,
    inputs: str | Sequence[Any],
    *args: Any,
    label: str,
    tolerance: float = 1e-5,
    **options: Any,
) -> OpCase:
    """Returns a case of a module."""
    inputs = [inputs] if isinstance(inputs, str) else inputs
    function = layer(op, *args, **options)
    return op_case(f"aten.{op}", *inputs, function=function, label=label, tolerance=tolerance)


def cell(kind: str, hidden: int = 6) -> OpCase:
    """Returns a case of one step with weights that are inputs."""
    rows = PARTS[kind] * hidden
    state = [f"batch {hidden}", f"batch {hidden}"] if kind == "lstm" else f"batch {hidden}"
    return decomposition_case(
        f"aten.{kind}_cell.default",
        "batch 4",
        state,
        f"{rows} 4",
        f"{rows} {hidden}",
        f"{rows}",
        f"{rows}",
    )


CASES = [
    *[of(op, "length batch 4", 4, 6, label="plain") for op in MODES],
    *[of(op, "batch length 4", 4, 6, batch_first=True, label="batch-first") for op in MODES],
    *[
        of(op, "length batch 4", 4, 6, 2, bidirectional=True, label="deep-both-ways")
        for op in MODES
    ],
    *[of(op, "5 2 4", 4, 6, bias=False, label="static-no-bias") for op in MODES],
    of(
        "lstm.input",
        ["length batch 4", "2 batch 6", "2 batch 6"],
        4,
        6,
        bidirectional=True,
        label="states",
    ),
    of("gru.input", ["length batch 4", "2 batch 6"], 4, 6, 2, label="states"),
    of(
        "lstm.input", "length batch 4", 4, 6, 2, proj_size=3, bidirectional=True, label="projection"
    ),
    of("lstm.input", "length 4", 4, 6, label="unbatched"),
    of("lstm.input", "1 batch 4", 4, 6, bidirectional=True, label="one-step"),
    op_case(
        "aten.gru.input",
        "length batch 4",
        "1 batch 6",
        ["18 4", "18 6", "18", "18"],
        True,
        1,
        0.0,
        False,
        False,
        False,
        label="weights-are-inputs",
    ),
    of(
        "lstm.input",
        [TensorSpec("length batch 4", F16)],
        4,
        6,
        dtype=F16,
        label="half",
        tolerance=5e-3,
    ),
    *[cell(kind) for kind in PARTS],
]
