"""Where the reference is known to differ from TensorRT 8.6.0, and why. A test asserts that it still does."""

from __future__ import annotations

from collections.abc import Mapping

_CASES: Mapping[str, tuple[str, ...]] = {
    ("Both refuse it, at different stages."): (
        "cast/constant/uint8",
        "cast/constant/nothing",
        "cast/constant/too few weights",
        "cast/constant/too many weights",
        "cast/constant/wildcard shape",
        "concatenation/no pieces",
        "conditional/assertion/dynamic size 3",
        "convolution/deconvolution/padding beyond the output",
        "convolution/deconvolution/kernel of one dimension",
        "gather/ELEMENT/larger off the axis",
        "grid_sample/rank 3",
        "grid_sample/rank 5",
        "indices/nms/boxes of rank 2",
        "indices/reverse/vector",
        "indices/rnn/RELU",
        "indices/rnn/TANH",
        "indices/rnn/LSTM",
        "indices/rnn/GRU",
        "loop/LAST_VALUE of what follows",
        "loop/malformed/two counts",
        "normalization/scale/channel axis 1, rank 3",
        "pooling/MAX/window 0",
        "pooling/AVERAGE/window 0",
        "resize/NEAREST/scalar",
        "scatter/ELEMENT/more off the axis",
        "shape_tensors/profile/crossed",
        "shape_tensors/profile/best outside",
        "shape_tensors/profile/negative",
    ),
    (
        "INT8 and UINT8 are for quantization: TensorRT wants a dynamic range, the INT8 flag or a "
        "Cast beside them; the reference treats them as plain integers."
    ): (
        "cast/int8 to FLOAT",
        "cast/int8 to HALF",
        "cast/int8 to INT8",
        "cast/int8 to INT32",
        "cast/int8 to BOOL",
        "cast/int8 to UINT8",
        "cast/identity/int8",
        "cast/identity/int8, undeclared",
        "cast/constant/int8",
        "concatenation/int8",
        "gather/DEFAULT/data int8",
        "indices/non-zero/int8",
        "quantization/scale 0.5, without the flag",
        "quantization/zero point 0",
        "scatter/ELEMENT/int8",
        "scatter/ND/int8",
        "shuffle/type/int8",
        "shuffle/type/uint8",
        "slice/STRICT_BOUNDS/int8",
        "slice/WRAP/int8",
        "slice/CLAMP/int8",
        "slice/FILL/int8",
        "slice/REFLECT/int8",
    ),
    (
        "TensorRT logs an error when an attribute is set to a value it rules out, keeps the old "
        "value, and builds; the reference refuses to build."
    ): (
        "concatenation/axis -1",
        "convolution/convolution/stride 0",
        "convolution/convolution/dilation 0",
        "convolution/convolution/negative padding",
        "convolution/deconvolution/negative padding",
        "grid_sample/NEAREST/STRICT_BOUNDS unaligned",
        "grid_sample/NEAREST/WRAP unaligned",
        "grid_sample/LINEAR/STRICT_BOUNDS unaligned",
        "grid_sample/LINEAR/WRAP unaligned",
        "grid_sample/CUBIC/STRICT_BOUNDS unaligned",
        "grid_sample/CUBIC/WRAP unaligned",
        "pooling/MAX/negative padding",
        "pooling/AVERAGE/negative padding",
        "pooling/MAX/stride 0",
        "pooling/AVERAGE/stride 0",
        "pooling/MAX_AVERAGE_BLEND/factor 2.0",
        "scatter/ELEMENT/axis -1",
        "softmax/mask 0",
        "softmax/two axes",
    ),
    (
        "TensorRT accepts here what its documentation rules out, and what comes out is not to be "
        "relied on; the reference stays strict."
    ): (
        "convolution/convolution/dynamic channels",
        "grid_sample/int32 image",
        "indices/one-hot/depth 0",
        "indices/reverse/length beyond",
        "matrix/einsum/IJ,JK->IK",
        "normalization/bias of another shape",
        "normalization/int32",
        "normalization/scale/rank 3",
        "pooling/MAX/window above the image",
        "pooling/AVERAGE/window above the image",
        "quantization/scale 0",
        "quantization/negative scale",
        "resize/NEAREST/nothing set",
    ),
    ("TensorRT answers otherwise, and the reference has yet to follow."): (
        "conditional/interior output",
        "convolution/kernel as dynamic input",
        "gather/DEFAULT/constant nothing",
        "gather/DEFAULT/of nothing",
        "indices/non-zero then how many static",
        "indices/non-zero then how many dynamic",
        "matrix/einsum/ij,jk->ik inner size 0",
        "normalization/group of rank 3",
        "shape_tensors/reshape through scatter",
        "shuffle/input/outside the profile",
    ),
    (
        "An output that nobody declares is FLOAT in TensorRT unless its producer is known to be "
        "an integer; the reference gives it the type it has."
    ): (
        "cast/float32 to HALF, undeclared",
        "cast/float32 to INT8, undeclared",
        "cast/float32 to UINT8, undeclared",
        "cast/int32 to HALF, undeclared",
        "cast/int32 to INT8, undeclared",
        "cast/int32 to UINT8, undeclared",
        "cast/identity/float16, undeclared",
        "cast/constant/float16",
        "quantization/quantize alone, undeclared",
    ),
    (
        "Which loops have an implementation depends on TensorRT's compiler; the reference knows "
        "only some of its limits."
    ): (
        "loop/REVERSE 0 trips",
        "loop/CONCATENATE axis 1",
        "loop/iterator rows, output reversed",
        "loop/iterator rows backwards, output reversed",
        "loop/iterator fewer trips than rows",
        "loop/iterator fewer trips than rows, backwards",
    ),
    (
        "TensorRT rounds (and saturates) into INT8 and UINT8, and removes a Cast through HALF; "
        "the reference truncates, and casts."
    ): (
        "cast/float32 to INT8",
        "cast/float16 to INT8",
        "cast/nan to INT8",
        "cast/float32 to HALF and back",
        "cast/70000 to HALF and back",
    ),
    (
        "TensorRT counts and pads windows beyond the edge in its own way; the reference follows "
        "the documented formula."
    ): (
        "convolution/convolution/CAFFE_ROUND_UP stride 3",
        "pooling/AVERAGE/counts padding EXPLICIT_ROUND_UP",
        "pooling/AVERAGE/counts padding CAFFE_ROUND_UP",
        "pooling/MAX/padding as large as the window",
        "pooling/AVERAGE/padding as large as the window",
    ),
    ("TensorRT wants the FP16 flag for an output type of HALF; the reference does not look."): (
        "cast/identity/float32 as HALF",
        "cast/identity/int32 as HALF",
        "cast/identity/bool as HALF",
        "fill/RANDOM_UNIFORM/uniform float16",
    ),
    ("TensorRT has no kernel for this; the reference computes it."): (
        "fill/RANDOM_UNIFORM/uniform crossed bounds",
        "resize/CUBIC/defaults",
        "resize/CUBIC/rank 2",
        "resize/CUBIC/rank 3",
    ),
    (
        "Scatter outside the data, or twice to one place, is undefined; TensorRT was seen to do "
        "something else than the reference."
    ): (
        "scatter/ELEMENT/beyond",
        "scatter/ELEMENT/repeated",
        "scatter/ELEMENT/more than the axis",
        "scatter/ND/beyond",
    ),
    (
        "TensorRT's arithmetic of NaN, infinities and zero divisors here is its own; the "
        "reference follows PyTorch."
    ): (
        "elementwise/POW/float32 nan",
        "elementwise/POW/float32 inf",
        "grid_sample/NEAREST/edges",
    ),
    (
        "TensorRT accepts a diagonal but answers with the first row, or refuses it; the reference "
        "computes the diagonal."
    ): (
        "matrix/einsum/ii->i",
        "matrix/einsum/ii->",
        "matrix/einsum/ii,ij->ij",
    ),
    ("TensorRT refuses this slice mode on booleans; the reference computes it."): (
        "slice/CLAMP/bool",
        "slice/FILL/bool",
        "slice/REFLECT/bool",
    ),
    ("TensorRT's maximum and minimum drop NaN (RELU of NaN is 0); the reference keeps it."): (
        "activation/RELU/edges",
        "pooling/MAX/nan and inf",
    ),
    ("TensorRT refuses fewer networks over tensors without elements than the reference does."): (
        "slice/STRICT_BOUNDS/nothing",
        "slice/STRICT_BOUNDS/of nothing",
    ),
    (
        "TensorRT answers NaN beyond the last number with the index -1 and a repeated infinity; "
        "the reference sorts NaN."
    ): (
        "top_k/MAX/nan and inf",
        "top_k/MIN/nan and inf",
    ),
    (
        "For a large input TensorRT returns the input itself, without alpha and beta; the "
        "reference follows the formula."
    ): ("activation/SOFTPLUS/edges",),
    ("Boxes of equal score come in another order."): ("indices/nms/two classes",),
    (
        "TensorRT fails on this input (illegal memory access or a crash); the reference answers "
        "in order."
    ): ("shuffle/second transpose/beyond the rank",),
}

REASONS: Mapping[str, str] = {name: reason for reason, names in _CASES.items() for name in names}
