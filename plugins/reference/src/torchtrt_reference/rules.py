"""The differences between versions of TensorRT in refusals and in results, each a named rule.

This is the only place that compares versions. Layers read a rule by name; what a version lacks altogether (a type, a
method, an enumeration member) is absent from its interface and needs no rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version. The defaults are those of the newest; an older one sets what differs.

    Attributes:
        version: The version they belong to.
        typing: ``"weak"``; ``"flag"`` (weak unless the network is created with STRONGLY_TYPED); or ``"strong"``.
        types_are_hints: The types of a weakly typed network are wishes (see ``building/precision.py``).
        needs_explicit_batch: A network without the EXPLICIT_BATCH flag is an implicit-batch network, which the
            reference does not have.
        shape_type: The type of the shape layer's output.
        integer_relu: RELU accepts integers.
        integer_power: POW accepts integers.
        integer_topk: TopK accepts integers.
        topk_drops_the_worst: TopK never selects NaN and the infinity at the wrong end: what is left over has index -1.
        infinite_numbers: A constant of one infinite element stays infinite where ElementWise and Select read it.
        float32_integer_reductions: Integers go through float32 on their way into and out of a reduction.
        softmax_minimum_rank: The minimum rank of SoftMax's input.
        shape_of_data_dependence: The Shape layer takes tensors whose dimensions depend on data.
        gathers_by_given_masks: A Gather may read what NonZero finds in a mask that is an input of the network.
        empty_einsum: Einsum takes empty tensors.
        upper_case_einsum: The labels of Einsum may be upper-case letters.
        normalization_bias_broadcasts_alone: Scale and bias of a normalization may have different shapes.
        group_normalization_minimum_rank: The minimum rank of a normalization of groups.
        scale_minimum_rank: The minimum rank of Scale's input.
        scale_weights_of_one_type: Shift, scale and power of Scale have one type, those without elements included.
        integer_images: GridSample takes integers at floating-point positions.
        convolution_channels_may_vary: A convolution takes the number of channels from its kernel, where they vary.
        empty_slice_beyond: A static slice of nothing with STRICT_BOUNDS may start outside the tensor.
        boolean_slice_modes: Slices of booleans take the modes CLAMP, FILL and REFLECT.
        empty_to_empty_reshape: A static reshape of an empty tensor to a shape with more zeros builds.
        loops_may_differ: Loop outputs are stacked along any axis, in any order, and iterators may be longer than loops.
        profile_needed_for_data_dependence: A network with data-dependent outputs gives no context without a profile.
        profiles_are_shared: Contexts may use a profile at a time, whatever the configuration was.
        unset_dims_are_none: Static attributes that are unset read as None, not as invalid dimensions.
        async_allocation: Output allocators are called by ``reallocate_output_async`` first.
        if_branches_may_differ: The dimensions of the two branches of a conditional may differ.
        quantize_scale_must_be_constant: Quantize and Dequantize need a build-time constant scale.
        grid_sample_maximum_rank: The maximum rank that GridSample takes.
        bindings_by_profile: Addresses in order are given once for each optimization profile.
        collectives_need_preview: Collectives of several ranks need the preview feature MULTIDEVICE_RUNTIME_10_16.
    """

    version: str
    typing: str = "strong"
    types_are_hints: bool = False
    needs_explicit_batch: bool = False
    shape_type: str = "INT64"
    integer_relu: bool = True
    integer_power: bool = True
    integer_topk: bool = True
    topk_drops_the_worst: bool = False
    infinite_numbers: bool = True
    float32_integer_reductions: bool = False
    softmax_minimum_rank: int = 1
    shape_of_data_dependence: bool = True
    gathers_by_given_masks: bool = True
    empty_einsum: bool = True
    upper_case_einsum: bool = False
    normalization_bias_broadcasts_alone: bool = False
    group_normalization_minimum_rank: int = 3
    scale_minimum_rank: int = 4
    scale_weights_of_one_type: bool = True
    integer_images: bool = False
    convolution_channels_may_vary: bool = False
    empty_slice_beyond: bool = True
    boolean_slice_modes: bool = True
    empty_to_empty_reshape: bool = True
    loops_may_differ: bool = True
    profile_needed_for_data_dependence: bool = False
    profiles_are_shared: bool = True
    unset_dims_are_none: bool = True
    async_allocation: bool = True
    if_branches_may_differ: bool = True
    quantize_scale_must_be_constant: bool = False
    grid_sample_maximum_rank: int = 5
    bindings_by_profile: bool = False
    collectives_need_preview: bool = False


_V11 = Rules("11.4.0")
_V10 = replace(
    _V11,
    version="10.16.1",
    typing="flag",
    unset_dims_are_none=False,
    grid_sample_maximum_rank=4,
    collectives_need_preview=True,
)
_V8 = replace(
    _V10,
    version="8.6.0",
    typing="weak",
    types_are_hints=True,
    needs_explicit_batch=True,
    shape_type="INT32",
    integer_relu=False,
    integer_power=False,
    integer_topk=False,
    topk_drops_the_worst=True,
    infinite_numbers=False,
    profiles_are_shared=False,
    float32_integer_reductions=True,
    softmax_minimum_rank=2,
    shape_of_data_dependence=False,
    gathers_by_given_masks=False,
    empty_einsum=False,
    upper_case_einsum=True,
    normalization_bias_broadcasts_alone=True,
    group_normalization_minimum_rank=4,
    scale_minimum_rank=3,
    scale_weights_of_one_type=False,
    integer_images=True,
    convolution_channels_may_vary=True,
    empty_slice_beyond=False,
    boolean_slice_modes=False,
    empty_to_empty_reshape=False,
    loops_may_differ=False,
    profile_needed_for_data_dependence=True,
    async_allocation=False,
    if_branches_may_differ=False,
    quantize_scale_must_be_constant=True,
    bindings_by_profile=True,
)
# The versions of the reference are the keys, the oldest first.
RULES = {rules.version: rules for rules in (_V8, _V10, _V11)}
