"""Single steps of recurrent layers computed by other ops, each a function of the op's own signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.decomposition(aten.lstm_cell.default)
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the hidden state and the memory after one step."""
    hidden, memory = hx
    gates = linear(input, w_ih, b_ih) + linear(hidden, w_hh, b_hh)
    admit, keep, new, emit = gates.split(hidden.shape[-1], -1)
    memory = torch.sigmoid(keep) * memory + torch.sigmoid(admit) * torch.tanh(new)
    return torch.sigmoid(emit) * torch.tanh(memory), memory


@pack.decomposition(aten.gru_cell.default)
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """Returns the hidden state after one step."""
    width = hx.shape[-1]
    reset, keep, new = linear(input, w_ih, b_ih).split(width, -1)
    old_reset, old_keep, old_new = linear(hx, w_hh, b_hh).split(width, -1)
    new = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
    return new + torch.sigmoid(keep + old_keep) * (hx - new)


def _simple_cell(activate: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Returns the decomposition of a recurrent cell with one gate, whose activation is given."""

    def rnn_cell(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        """Returns the hidden state after one step."""
        return activate(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))

    return rnn_cell


pack.decomposition(aten.rnn_tanh_cell.default)(_simple_cell(torch.tanh))
pack.decomposition(aten.rnn_relu_cell.default)(_simple_cell(torch.relu))
