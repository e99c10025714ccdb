"""Layers for several processes or particular GPUs."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchtrt_reference.semantics.communication import exchange
from torchtrt_reference.semantics.operation import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

Tensor = torch.Tensor


class MoE(Operation):
    """A mixture of experts: for every token the weighted sum of what a few of the experts make of it.

    The inputs are hidden states ``[B, S, H]``, then the chosen experts and their scores, ``[B, S, K]`` each. The gate
    and up weights are ``[E, H, I]``, the down weights ``[E, I, H]``.
    The biases ``[E, I]``, ``[E, I]`` and ``[E, H]`` are optional.
    An expert computes ``down(up(x) * silu(gate(x)))``.
    """

    name = "moe"
    methods = frozen({"add_moe": {}})
    defaults = frozen(
        {
            "activation_type": "SILU",
            "quantization_to_type": "FLOAT",
            "quantization_block_shape": None,
            "dyn_q_output_scale_type": "FLOAT",
            "swiglu_param_limit": math.inf,
            "swiglu_param_alpha": 1.0,
            "swiglu_param_beta": 0.0,
            "quantized": False,
        }
    )
    maximum_inputs = 9

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Weights of one size, all biases or none; without quantization and parameters of SwiGLU."""
        call.require(not call["quantized"], "the reference does not quantize a mixture of experts")
        swiglu = tuple(call[f"swiglu_param_{name}"] for name in ("limit", "alpha", "beta"))
        call.require(
            call["activation_type"] == "SILU" and swiglu == (math.inf, 1.0, 0.0),
            "the reference computes experts with SILU, without limit, alpha and beta of SwiGLU",
        )
        hidden, chosen, scores = (call.shape(index) for index in range(3))
        call.accept(1, INTEGERS, "the selected experts")
        call.require(
            len(hidden) == len(chosen) == 3 and chosen == scores,
            f"hidden states {hidden}, experts {chosen} and scores {scores} must be [B, S, H] and twice [B, S, K]",
        )
        biases = [index for index in range(6, 9) if call.optional(index) is not None]
        call.require(len(biases) in (0, 3), "a mixture of experts has all three biases or none")
        dtype = call.same_type(0, 2, 3, 4, 5, *biases, what="the operands of a mixture of experts")
        call.accept(0, FLOATS, "hidden states")
        gate, up, down = (call.shape(index) for index in range(3, 6))
        call.require(
            len(gate) == 3 and gate == up and down == (gate[0], gate[2], gate[1]),
            f"the weights {gate}, {up} and {down} must be twice [E, H, I] and [E, I, H]",
        )
        call.require(hidden[2] in (gate[1], -1), f"{hidden[2]} features do not fit {gate}")
        for index, length in zip(biases, (gate[2], gate[2], gate[1]), strict=False):
            call.require(
                call.shape(index) == (gate[0], length),
                f"the bias in input {index} must be {(gate[0], length)}, not {call.shape(index)}",
            )
        return (TensorFacts(dtype, hidden),)

    def bind(self, call: Call) -> Function:
        """Each expert computes the tokens that chose it."""

        def experts(
            hidden: Tensor,
            chosen: Tensor,
            scores: Tensor,
            gate: Tensor,
            up: Tensor,
            down: Tensor,
            *biases: Tensor,
        ) -> Tensor:
            tokens, result = hidden.flatten(0, 1), torch.zeros_like(hidden.flatten(0, 1))
            picked, weights = chosen.flatten(0, 1), scores.flatten(0, 1)
            for expert in range(gate.shape[0]):
                rows, slots = (picked == expert).nonzero(as_tuple=True)
                x = tokens[rows]
                gated, raised = x @ gate[expert], x @ up[expert]
                if biases:
                    gated, raised = gated + biases[0][expert], raised + biases[1][expert]
                made = (raised * torch.nn.functional.silu(gated)) @ down[expert]
                if biases:
                    made = made + biases[2][expert]
                result.index_add_(0, rows, made * weights[rows, slots].unsqueeze(1))
            return result.view(hidden.shape)

        return experts


_REDUCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = frozen(
    {
        "SUM": torch.add,
        "AVG": torch.add,
        "PROD": torch.mul,
        "MAX": torch.maximum,
        "MIN": torch.minimum,
    }
)
_REDUCING = {"ALL_REDUCE", "REDUCE", "REDUCE_SCATTER"}
_ROOTED = {"BROADCAST", "REDUCE", "GATHER", "SCATTER"}
_GATHERING = {"ALL_GATHER", "GATHER"}
_SCATTERING = {"REDUCE_SCATTER", "SCATTER"}
_ALONG_ROWS = _GATHERING | _SCATTERING | {"ALL_TO_ALL"}


class DistCollective(Operation):
    """A collective over several processes: ``num_ranks`` of those of the execution context's communicator.

    ``groups`` lists the ranks that take part, all of them if it is empty. Along the first dimension, gathering puts the
    tensors one after another, and scattering gives a part to each rank. REDUCE and GATHER return zeros to all ranks but
    the root.
    """

    name = "dist_collective"
    methods = frozen({"add_dist_collective": {}})
    defaults = frozen(
        {
            "dist_collective_op": "ALL_REDUCE",
            "reduce_op": "NONE",
            "root": -1,
            "groups": None,
            "num_ranks": 1,
        }
    )

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """Each exchange counts, because other processes take part in it."""
        return False

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """The number of ranks is given once."""
        before = layer._attributes[attribute]
        if value < 1 or before not in (1, value):
            message = (
                f"num_ranks cannot become {value} after {before}: it is 1 or more, and is set once"
            )
            raise RefusedError(message)
        layer._attributes[attribute] = value

    def admit(self, call: Call) -> None:
        """A reduction where the collective reduces, a root where it has one, and different ranks."""
        op, reduction, root = call["dist_collective_op"], call["reduce_op"], call["root"]
        call.require(
            (reduction == "NONE") is (op not in _REDUCING),
            f"{op} {'needs a' if op in _REDUCING else 'takes no'} reduce_op, not {reduction}",
        )
        has_root = op in _ROOTED
        call.require(
            root >= 0 if has_root else root == -1,
            f"the root of {op} must be {'a rank' if has_root else '-1'}, not {root}",
        )
        members = _members(call)
        call.require(
            members is None or (min(members) >= 0 and len(set(members)) == len(members)),
            f"groups must be different ranks, not {members}",
        )
        # Documented neither as a rank of the group nor as one of the communicator.
        call.require(
            not (has_root and members) or members[root : root + 1] == [root],
            f"the root {root} must be a rank of the groups {members}, and at its own place in them",
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The tensor of one process, longer after gathering and shorter after scattering."""
        self.admit(call)
        dtype = call.accept(0, NUMBERS | {"INT8"}, "the input of a collective")
        op, shape, count = call["dist_collective_op"], call.shape(), call["num_ranks"]
        call.require(
            call["reduce_op"] != "AVG" or dtype in FLOATS, "AVG of integers is not documented"
        )
        call.require(
            op not in _ALONG_ROWS or bool(shape), f"{op} needs a dimension, and the input is 0-d"
        )
        rows = shape[0] if shape else 1
        if count > 1 and op in _SCATTERING | {"ALL_TO_ALL"}:
            call.require(
                rows == -1 or rows % count == 0,
                f"the first dimension of {op}, {rows}, must be divisible by num_ranks, {count}",
            )
        if rows != -1 and op in _GATHERING:
            rows *= count
        elif rows != -1 and op in _SCATTERING:
            rows //= count
        return (TensorFacts(call.declared(dtype), (rows, *shape[1:]) if shape else ()),)

    def bind(self, call: Call) -> Function:
        """The tensors of all ranks, and what this one makes of them; nothing to exchange among one."""
        members, count = _members(call), call["num_ranks"]
        root = max(0, call["root"])
        call.require(
            len(members or range(count)) == count and root < count,
            f"num_ranks is {count}, for the groups {members} and the root {call['root']}",
        )
        if count == 1:
            return lambda x: x
        return lambda x: _result(call, *exchange(x, members, count))


def _members(call: Call) -> list[int] | None:
    """Returns the ranks that take part; None for all."""
    groups: Any = call["groups"]
    return None if groups is None or not len(groups) else [int(rank) for rank in groups]


def _reduced(tensors: Sequence[Tensor], reduction: str) -> Tensor:
    total = functools.reduce(_REDUCTIONS[reduction], tensors)
    return total / len(tensors) if reduction == "AVG" else total


def _part(tensor: Tensor, position: int, count: int) -> Tensor:
    return tensor.chunk(count)[position] if len(tensor) else tensor


def _result(call: Call, tensors: list[Tensor], position: int) -> Tensor:
    """Returns the result of one rank, from the tensors of all and its place among them."""
    op, root, count = call["dist_collective_op"], call["root"], len(tensors)
    if op == "ALL_TO_ALL":
        return torch.cat([_part(tensor, position, count) for tensor in tensors])
    if op in _REDUCING:
        whole = _reduced(tensors, call["reduce_op"])
    else:
        whole = torch.cat(tensors) if op in _GATHERING else tensors[root]
    if op in _SCATTERING:
        return _part(whole, position, count)
    return whole if op not in ("REDUCE", "GATHER") or position == root else torch.zeros_like(whole)


OPERATIONS = (MoE(), DistCollective())
