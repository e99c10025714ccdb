"""Nothing is left out: every op of two lists is converted, decomposed, or named here with the reason why not."""

import json
from pathlib import Path

import pytest
import torch

from torchtrt.packs import loaded_packs
from torchtrt.targets import qualified_name
from torchtrt.testing import first_party_cases

TARGETS = json.loads((Path(__file__).parent / "torch_tensorrt_targets.json").read_text())["targets"]

TRAINING = "it is for training, and engines are for inference"
MEMORY = "it is about how PyTorch lays out memory, which a network does not control"
OUT = "it writes into a tensor that is given; exporting writes the functional form"
PACKET = "it is another name of an op that is converted"
QUANTIZED = "it is another library's op for quantized networks"
COLLECTIVE = "it is another library's op for several devices"

COMPLEX = (
    "TensorRT has no complex numbers; where a model is real before and after, a pass makes matrix products of it: "
    "the tests of the pack complex"
)

LEFT_OUT = {
    "aten._adaptive_avg_pool2d_backward.default": TRAINING,
    "aten.avg_pool2d_backward.default": TRAINING,
    "aten.convolution_backward.default": TRAINING,
    "aten.embedding_dense_backward.default": TRAINING,
    "aten.max_pool2d_with_indices_backward.default": TRAINING,
    "aten.native_group_norm_backward.default": TRAINING,
    "aten.native_layer_norm_backward.default": TRAINING,
    "aten._fft_c2r.default": COMPLEX,
    "aten._fft_r2c.default": COMPLEX,
    "aten._local_scalar_dense.default": "it makes a Python number of an element, on which code may depend",
    "aten.atan2.out": OUT,
    "aten.resize_.default": "it changes a tensor's size in place",
    "aten.sym_is_contiguous.default": MEMORY,
    "aten.sym_storage_offset.default": MEMORY,
    "aten.sym_stride.int": MEMORY,
    "aten.batch_norm": PACKET,
    "aten.grid_sampler": PACKET,
    "aten.grid_sampler_2d": PACKET,
    "aten.matmul": PACKET,
    "tensorrt.dynamic_block_quantize_op.default": QUANTIZED,
    "tensorrt.quantize_op.default": QUANTIZED,
    "tensorrt_conv_asym_pad_op": "it is another library's op; padding and convolution are two ops here",
    "tensorrt_fused_nccl_all_gather_op": COLLECTIVE,
    "tensorrt_fused_nccl_all_reduce_op": COLLECTIVE,
    "tensorrt_fused_nccl_all_to_all_op": COLLECTIVE,
    "tensorrt_fused_nccl_gather_op": COLLECTIVE,
    "tensorrt_fused_nccl_reduce_scatter_op": COLLECTIVE,
    "tensorrt_fused_nccl_scatter_op": COLLECTIVE,
}
"""Ops that no pack converts, and why."""


def core_overloads():
    """Returns the names of all overloads that PyTorch tags as core ATen."""
    names = set()
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        packet, _, overload = name.partition(".")
        if namespace != "aten" or not hasattr(torch.ops.aten, packet):
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            names.add(qualified_name(op))
    return sorted(names)


def served():
    """Returns the ops that are converted or decomposed: by a pack, or by PyTorch as a case shows."""
    entries = [
        entry
        for loaded in loaded_packs()
        for entry in (*loaded.pack.converters, *loaded.pack.decompositions)
    ]
    names = {qualified_name(entry.target) for entry in entries}
    shown = [
        case.function
        for case in first_party_cases()
        if isinstance(case.function, torch._ops.OpOverload)
    ]
    return names | {qualified_name(function) for function in shown}


@pytest.mark.parametrize("names", [TARGETS, core_overloads()], ids=["torch_tensorrt", "core"])
def test_every_op_of_the_list_is_served_or_left_out_with_a_reason(names):
    """Users of Torch-TensorRT, and of core ATen, find each of their ops."""
    assert set() == set(names) - served() - set(LEFT_OUT)


def test_what_is_left_out_is_not_served():
    """No reason outlives the day on which the op is converted."""
    assert set() == set(LEFT_OUT) & served()


def test_what_is_left_out_is_in_a_list():
    """No reason is given for an op outside of the lists."""
    assert set() == set(LEFT_OUT) - set(TARGETS) - set(core_overloads())
