"""What the versions of TensorRT refuse and compute differently, each difference a named rule.

This is the only place that knows versions. Layers ask for a rule by name; what a version lacks altogether (a type, a
method, an enumeration member) is absent from its interface and needs no rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version.

    Attributes:
        version: The version they belong to.
        typing: ``"weak"``; ``"flag"`` (weak unless the network is created with STRONGLY_TYPED); or ``"strong"``.
        needs_explicit_batch: A network without the EXPLICIT_BATCH flag is an implicit-batch network, which the
            reference does not have.
        shape_type: The type of the shape layer's output.
        integer_relu: RELU accepts integers.
        integer_power: POW accepts integers.
        integer_topk: TopK accepts integers.
        float32_integer_reductions: Integer reductions are computed in float32.
        softmax_least_rank: The least rank of SoftMax's input.
        empty_strict_slice: A static slice with an empty result and STRICT_BOUNDS builds.
        empty_to_empty_reshape: A static reshape of an empty tensor to a shape with more zeros builds.
        loop_reverse: LoopOutput.REVERSE has an implementation.
        profile_needed_for_data_dependence: A network with data-dependent outputs gives no context without a profile.
        unset_dims_are_none: Static attributes that are unset read as None, not as invalid dimensions.
        weights_read_as_objects: Weights of types that NumPy lacks read back as Weights.
        async_allocation: Output allocators are asked through ``reallocate_output_async`` first.
        if_branches_may_differ: The dimensions of the two branches of a conditional may differ.
        quantize_scale_must_be_constant: Quantize and Dequantize need a build-time constant scale.
        bindings_by_profile: Addresses in order are given once for each optimization profile.
    """

    version: str
    typing: str
    needs_explicit_batch: bool
    shape_type: str
    integer_relu: bool
    integer_power: bool
    integer_topk: bool
    float32_integer_reductions: bool
    softmax_least_rank: int
    empty_strict_slice: bool
    empty_to_empty_reshape: bool
    loop_reverse: bool
    profile_needed_for_data_dependence: bool
    unset_dims_are_none: bool
    weights_read_as_objects: bool
    async_allocation: bool
    if_branches_may_differ: bool
    quantize_scale_must_be_constant: bool
    bindings_by_profile: bool


_V8 = Rules(
    version="8.6.0",
    typing="weak",
    needs_explicit_batch=True,
    shape_type="INT32",
    integer_relu=False,
    integer_power=False,
    integer_topk=False,
    float32_integer_reductions=True,
    softmax_least_rank=2,
    empty_strict_slice=False,
    empty_to_empty_reshape=False,
    loop_reverse=False,
    profile_needed_for_data_dependence=True,
    unset_dims_are_none=False,
    weights_read_as_objects=False,
    async_allocation=False,
    if_branches_may_differ=False,
    quantize_scale_must_be_constant=True,
    bindings_by_profile=True,
)
_V10 = Rules(
    version="10.16.1",
    typing="flag",
    needs_explicit_batch=False,
    shape_type="INT64",
    integer_relu=True,
    integer_power=True,
    integer_topk=True,
    float32_integer_reductions=False,
    softmax_least_rank=1,
    empty_strict_slice=True,
    empty_to_empty_reshape=True,
    loop_reverse=True,
    profile_needed_for_data_dependence=False,
    unset_dims_are_none=False,
    weights_read_as_objects=True,
    async_allocation=True,
    if_branches_may_differ=True,
    quantize_scale_must_be_constant=False,
    bindings_by_profile=False,
)
_V11 = Rules(
    version="11.4.0",
    typing="strong",
    needs_explicit_batch=False,
    shape_type="INT64",
    integer_relu=True,
    integer_power=True,
    integer_topk=True,
    float32_integer_reductions=False,
    softmax_least_rank=1,
    empty_strict_slice=True,
    empty_to_empty_reshape=True,
    loop_reverse=True,
    profile_needed_for_data_dependence=False,
    unset_dims_are_none=True,
    weights_read_as_objects=True,
    async_allocation=True,
    if_branches_may_differ=True,
    quantize_scale_must_be_constant=False,
    bindings_by_profile=False,
)
RULES = {rules.version: rules for rules in (_V8, _V10, _V11)}
