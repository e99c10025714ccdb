"""The names of what a TensorRT may be able to do.

``torchtrt.tensorrt.probes`` finds out what the TensorRT in use can.
"""

from __future__ import annotations

import enum

_REFERENCE = "reference"
_RTX = "TensorRT for RTX"


class Capability(enum.Enum):
    """A capability that one TensorRT has and another lacks.

    Attributes:
        group: The part of TensorRT that it concerns: ``"networks"``, ``"dtypes"``, ``"layers"``, ``"building"``,
            ``"running"`` or ``"exactness"``.
        title: Its name in messages, which completes "... needs".
        since: The first product and version with it among those that torchtrt supports: ``"TensorRT 10.0"``. Only the
            product, without a version, if all of its versions have it.
        description: One sentence.
    """

    __hash__ = object.__hash__  # Enum's own runs in Python, and each lookup asks for several

    group: str
    title: str
    since: str
    description: str

    def __init__(self, group: str, title: str, since: str, description: str) -> None:
        self.group = group
        self.title = title
        self.since = since
        self.description = description

    STRONG_TYPING = (
        "networks", "strongly typed networks", "TensorRT 10.0",
        "TensorRT computes with the dtypes of the network's tensors, and with no others.",
    )  # fmt: skip
    DATA_DEPENDENT_SIZES = (
        "networks", "outputs whose sizes depend on data", "TensorRT 8.6",
        "The NonZero layer builds, and an engine returns outputs whose sizes it computes.",
    )  # fmt: skip
    SIZES_FROM_DATA = (
        "networks", "layers that read a size that depends on data", "TensorRT 10.0",
        "Layers after a NonZero layer can read the size of its output.",
    )  # fmt: skip
    BRANCHES_OF_OTHER_SIZES = (
        "networks", "conditionals whose branches return different sizes", "TensorRT 10.11",
        "The results of the two branches of a conditional can have different sizes.",
    )  # fmt: skip
    PLUGINS_V3 = (
        "networks", "plugins of the interface IPluginV3", "TensorRT 10.0",
        "Networks accept plugins of the interface IPluginV3.",
    )  # fmt: skip
    QUICK_PLUGINS = (
        "networks", "quickly deployable plugins", "TensorRT 10.6",
        "Networks accept plugins that are Python functions with decorators.",
    )  # fmt: skip
    AOT_PLUGINS = (
        "networks", "plugins whose compiled kernels are in the plan", "TensorRT 10.9",
        "Networks accept plugins with compiled kernels, which an engine launches without Python.",
    )  # fmt: skip

    INT64 = (
        "dtypes", "the dtype INT64", "TensorRT 10.0",
        "Tensors can be 64-bit integers.",
    )  # fmt: skip
    BFLOAT16 = (
        "dtypes", "the dtype BF16", "TensorRT 10.0",
        "Tensors can be bfloat16.",
    )  # fmt: skip
    FP8 = (
        "dtypes", "the dtype FP8", "TensorRT 8.6",
        "Tensors can be 8-bit floating point, E4M3.",
    )  # fmt: skip
    INT4 = (
        "dtypes", "the dtype INT4", "TensorRT 10.0",
        "Weights can be 4-bit integers, two in a byte.",
    )  # fmt: skip
    FP4 = (
        "dtypes", "the dtype FP4", "TensorRT 10.8",
        "Tensors can be 4-bit floating point, E2M1, two in a byte.",
    )  # fmt: skip
    E8M0 = (
        "dtypes", "the dtype E8M0", "TensorRT 10.12",
        "The scale of a block can be a power of two in 8 bits, as in MXFP8.",
    )  # fmt: skip

    ATTENTION = (
        "layers", "the layer IAttention", "TensorRT 10.14",
        "Attention is one operator, with a mask or causal.",
    )  # fmt: skip
    ATTENTION_V2 = (
        "layers", "version 2 of the layer IAttention", "TensorRT 11.0",
        "The attention operator distinguishes causal masks that start in the upper left and in the lower right.",
    )  # fmt: skip
    KV_CACHE_UPDATE = (
        "layers", "the layer IKVCacheUpdateLayer", "TensorRT 10.15",
        "A layer writes new keys and values into a cache that it shares with an input.",
    )  # fmt: skip
    ROTARY_EMBEDDING = (
        "layers", "the layer IRotaryEmbeddingLayer", "TensorRT 10.15",
        "Rotary position embedding is one layer.",
    )  # fmt: skip
    MIXTURE_OF_EXPERTS = (
        "layers", "the layer IMoELayer", "TensorRT 10.16",
        "A mixture of experts is one layer.",
    )  # fmt: skip
    NORMALIZATION_V2 = (
        "layers", "version 2 of the layer INormalizationLayer", "TensorRT 10.15",
        "Group, instance and layer normalization take the shapes of scale and bias that ONNX defines.",
    )  # fmt: skip
    CUMULATIVE = (
        "layers", "the layer ICumulativeLayer", "TensorRT 10.8",
        "A running sum is one layer.",
    )  # fmt: skip
    GELU = (
        "layers", "the activations GELU_ERF and GELU_TANH", "TensorRT 10.0",
        "GELU is one layer, with erf or with tanh.",
    )  # fmt: skip
    NON_MAXIMUM_SUPPRESSION = (
        "layers", "the layer INMSLayer", "TensorRT 8.6",
        "Non-maximum suppression of boxes is one layer.",
    )  # fmt: skip
    BFLOAT16_DECONVOLUTION = (
        "layers", "the layer IDeconvolutionLayer for bfloat16", "TensorRT 10.0",
        "The Deconvolution layer computes bfloat16.",
    )  # fmt: skip
    TYPED_QUANTIZATION = (
        "networks", "Quantize and Dequantize layers with an output dtype", "TensorRT 10.0",
        "Quantize and Dequantize layers take the dtype that they return.",
    )  # fmt: skip
    QUANTIZED_CONSTANTS = (
        "networks", "constants of int8 in any network", "TensorRT 10.0",
        "A Dequantize layer reads a constant of int8, whatever its neighbors are.",
    )  # fmt: skip
    BLOCK_QUANTIZATION = (
        "layers", "Quantize and Dequantize layers with a block shape", "TensorRT 10.15",
        "Quantize and Dequantize layers take the shape of the blocks that share a scale.",
    )  # fmt: skip
    DYNAMIC_QUANTIZATION = (
        "layers", "the layer IDynamicQuantizeLayer", "TensorRT 10.8",
        "A layer quantizes and computes the scale of each block along one axis.",
    )  # fmt: skip
    DYNAMIC_QUANTIZATION_V2 = (
        "layers", "the layer IDynamicQuantizeLayer with a block shape", "TensorRT 10.15",
        "A layer quantizes and computes the scale of each block of a shape.",
    )  # fmt: skip
    DISTRIBUTED_COLLECTIVES = (
        "layers", "the layer IDistCollectiveLayer", "TensorRT 10.16",
        "Layers exchange tensors between processes: all-reduce, all-gather and the like.",
    )  # fmt: skip
    ALL_TO_ALL = (
        "layers", "the layer IDistCollectiveLayer for all-to-all", "TensorRT 11.0",
        "A layer sends a part of a tensor to each process, and receives one from each.",
    )  # fmt: skip

    SPARSE_WEIGHTS = (
        "building", "kernels for sparse weights", "TensorRT 8.6",
        "The builder may use kernels for weights that have two zeros in four.",
    )  # fmt: skip
    REFIT = (
        "building", "engines whose weights can be replaced", "TensorRT 8.6",
        "An engine takes other weights after it is built.",
    )  # fmt: skip
    STRIPPED_PLANS = (
        "building", "plans without weights", "TensorRT 10.0",
        "A plan omits the weights that refitting restores.",
    )  # fmt: skip
    WEIGHT_STREAMING = (
        "building", "weight streaming", "TensorRT 10.0",
        "An engine keeps weights in the memory of the CPU until it needs them.",
    )  # fmt: skip
    VERSION_COMPATIBILITY = (
        "building", "engines for later versions of TensorRT", "TensorRT 8.6",
        "An engine runs in later versions of TensorRT too.",
    )  # fmt: skip
    TARGET_COMPUTE_CAPABILITIES = (
        "building", "engines for chosen compute capabilities", f"{_RTX} 1.0",
        "The builder takes the compute capabilities of the GPUs that run the engine.",
    )  # fmt: skip
    TIMING_CACHE = (
        "building", "timing caches", "TensorRT 8.6",
        "The builder takes the timings of kernels from earlier builds.",
    )  # fmt: skip
    TILING = (
        "building", "tiling optimization", "TensorRT 10.8",
        "The builder searches for kernels that compute in tiles of the size of the L2 cache.",
    )  # fmt: skip
    CROSS_COMPILATION = (
        "building", "cross-compilation for Windows", "TensorRT 10.2",
        "The builder on Linux makes engines that run on Windows.",
    )  # fmt: skip
    SHARED_PROFILES = (
        "building", "optimization profiles that contexts share", "TensorRT 10.0",
        "Several execution contexts use one optimization profile without a preview feature.",
    )  # fmt: skip
    SETTLED_COLLECTIVES = (
        "building", "collectives without a preview feature", "TensorRT 11.0",
        "The builder takes layers that exchange tensors without a preview feature.",
    )  # fmt: skip
    SINGLE_ROW_LOOPS = (
        "building", "loops that multiply one row", "TensorRT 8.6",
        "A loop whose body multiplies a single row with a matrix builds as fast as one with several rows.",
    )  # fmt: skip
    BUILDS_WITHOUT_GPU = (
        "building", "a builder that needs no GPU", f"{_RTX} 1.0",
        "Engines build on a machine without a GPU.",
    )  # fmt: skip

    ALLOCATION_STRATEGIES = (
        "running", "allocation strategies of execution contexts", "TensorRT 10.0",
        "A strategy determines who allocates the memory in which a context computes.",
    )  # fmt: skip
    RUNTIME_CACHE = (
        "running", "runtime caches", f"{_RTX} 1.0",
        "A cache keeps the kernels that an engine compiles while it runs.",
    )  # fmt: skip
    KERNEL_SPECIALIZATION = (
        "running", "kernel specialization strategies", f"{_RTX} 1.0",
        "A strategy determines when an engine compiles kernels for dynamic sizes.",
    )  # fmt: skip
    CUDA_GRAPH_STRATEGY = (
        "running", "CUDA graph strategies of the runtime", f"{_RTX} 1.2",
        "The runtime captures an engine as a CUDA graph and replays it.",
    )  # fmt: skip
    USER_ALLOCATION = (
        "running", "engines without allocations of their own", f"{_RTX} 1.2",
        "An engine allocates nothing while it runs, so that a stream can capture it.",
    )  # fmt: skip
    PROCESS_GROUPS = (
        "running", "engines that exchange tensors through torch.distributed", _REFERENCE,
        "An execution context takes a process group of PyTorch, with any backend, as its communicator.",
    )  # fmt: skip
    TORCH_DEVICES = (
        "running", "engines that PyTorch executes", _REFERENCE,
        "The runtime executes engines on any device of PyTorch, the CPU included.",
    )  # fmt: skip

    INTEGER_REDUCTION = (
        "exactness", "integers that Reduce layers compute exactly", "TensorRT 10.0",
        "Reduce layers compute integers as integers, and not as float32.",
    )  # fmt: skip
    INTEGER_RANKING = (
        "exactness", "TopK layers for integers", "TensorRT 10.0",
        "TopK layers take integers.",
    )  # fmt: skip
    INFINITE_CONSTANTS = (
        "exactness", "constants that stay infinite", "TensorRT 10.0",
        "A constant of one infinite element stays infinite.",
    )  # fmt: skip
    SINGLE_ROW_PRODUCTS = (
        "exactness", "batches of products of one row", "TensorRT 10.0",
        "Attention with a mask and one query is computed right in any form.",
    )  # fmt: skip
    SEVERAL_VARYING_SIZES = (
        "exactness", "networks with several dynamic sizes", "TensorRT 10.0",
        "Networks with several dynamic sizes are computed right, and products in them need no special form.",
    )  # fmt: skip
    FREE_FORM_ATTENTION = (
        "exactness", "masked attention in any form", "TensorRT 10.0",
        "Attention with a mask needs no special form to become one kernel.",
    )  # fmt: skip
