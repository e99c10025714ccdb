"""Layers for several processes or particular GPUs: what one process can compute of them, and what is refused."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_reference.semantics.operation import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import TensorFacts

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
        given = [index for index in range(6, 9) if call.optional(index) is not None]
        call.require(len(given) in (0, 3), "a mixture of experts has all three biases or none")
        dtype = call.same_type(0, 2, 3, 4, 5, *given, what="the operands of a mixture of experts")
        call.accept(0, FLOATS, "hidden states")
        gate, up, down = (call.shape(index) for index in range(3, 6))
        call.require(
            len(gate) == 3 and gate == up and down == (gate[0], gate[2], gate[1]),
            f"the weights {gate}, {up} and {down} must be twice [E, H, I] and [E, I, H]",
        )
        call.require(hidden[2] in (gate[1], -1), f"{hidden[2]} features do not fit {gate}")
        for index, length in zip(given, (gate[2], gate[2], gate[1]), strict=False):
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


_REDUCING = {"ALL_REDUCE", "REDUCE", "REDUCE_SCATTER"}
_ROOTED = {"BROADCAST", "REDUCE", "GATHER", "SCATTER"}


class DistCollective(Operation):
    """A collective over several processes. The reference is one process, which has nothing to exchange."""

    name = "dist_collective"
    methods = frozen({"add_dist_collective": {}})
    defaults = frozen(
        {"dist_collective_op": "ALL_REDUCE", "reduce_op": "NONE", "root": -1, "groups": None}
    )

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """Each exchange counts, because other processes take part in it."""
        return False

    def admit(self, call: Call) -> None:
        """A reduction where the collective reduces, a root where it has one; no process but the first."""
        op, reduction, root = call["dist_collective_op"], call["reduce_op"], call["root"]
        call.require(
            (reduction == "NONE") is (op not in _REDUCING),
            f"{op} {'needs a' if op in _REDUCING else 'takes no'} reduce_op, not {reduction}",
        )
        call.require(
            root == (0 if op in _ROOTED else -1),
            f"the root of {op} among one process is {0 if op in _ROOTED else -1}, not {root}",
        )
        groups: Any = call["groups"]
        flat = [] if groups is None else [int(rank) for rank in _flattened(groups)]
        call.require(flat in ([], [0]), f"the reference runs in one process, there are no {groups}")

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The tensor of the only process."""
        self.admit(call)
        dtype = call.accept(0, NUMBERS | {"INT8"}, "the input of a collective")
        return (TensorFacts(call.declared(dtype), call.shape()),)

    def bind(self, call: Call) -> Function:
        """Nothing to exchange."""
        return lambda x: x


def _flattened(groups: Any) -> list[Any]:
    if hasattr(groups, "__iter__"):
        return [rank for group in groups for rank in _flattened(group)]
    return [groups]


OPERATIONS = (MoE(), DistCollective())
