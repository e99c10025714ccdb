"""The registry: which converter converts a node, and why that one."""

from torchtrt.packs import CallingConvention, ConverterPriority, ConverterSupport, PackInfo, Reject
from torchtrt.registry.candidate import (
    Candidate,
    DecompositionCandidate,
    Rejection,
    RejectionCode,
    Resolution,
)
from torchtrt.registry.local import (
    decompositions,
    dynamo_tensorrt_converter,
    get_graph_converter_support,
    register_torch_trt_decomposition,
)
from torchtrt.registry.order import Conflict
from torchtrt.registry.passes import PackPass, enabled_passes, export_contexts, lowering_passes
from torchtrt.registry.registry import DYNAMO_CONVERTERS, ConverterRegistry

__all__ = [
    "DYNAMO_CONVERTERS", "CallingConvention", "Candidate", "Conflict", "ConverterPriority",
    "ConverterRegistry", "ConverterSupport", "DecompositionCandidate", "PackInfo", "PackPass",
    "Reject", "Rejection", "RejectionCode", "Resolution", "decompositions", "dynamo_tensorrt_converter",
    "enabled_passes", "export_contexts", "get_graph_converter_support", "lowering_passes",
    "register_torch_trt_decomposition",
]  # fmt: skip
