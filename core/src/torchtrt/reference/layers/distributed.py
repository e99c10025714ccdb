"""Layers that the reference refuses when they are added: what they need is not there."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from torchtrt.reference.facts import Fact, Refused
from torchtrt.reference.operation import Call, Operation, frozen


class _Refusing(Operation):
    """A layer that exists in the interface and cannot run here."""

    reason = ""

    def admit(self, call: Call) -> None:
        """Never."""
        raise Refused(self.reason)

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Never reached: the layer is not added."""
        raise Refused(self.reason)


class MoE(_Refusing):
    """A mixture of experts."""

    name = "moe"
    methods = frozen({"add_moe": {}})
    defaults = frozen(
        {
            "activation_type": "SILU",
            "quantization_to_type": "FLOAT",
            "quantization_block_shape": None,
            "dyn_q_output_scale_type": "FLOAT",
            "swiglu_param_limit": float("inf"),
            "swiglu_param_alpha": 1.0,
            "swiglu_param_beta": 0.0,
        }
    )
    reason = "mixture-of-experts layers need a GPU of compute capability 10 or 11: compose the experts from products"


class DistCollective(_Refusing):
    """A collective over several processes."""

    name = "dist_collective"
    methods = frozen({"add_dist_collective": {}})
    defaults = frozen({"dist_collective_op": None, "reduce_op": None, "root": None, "groups": None})
    reason = "collectives need several processes with a GPU each; the reference runs in one"


OPERATIONS = (MoE(), DistCollective())
