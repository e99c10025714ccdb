"""Cases of convolutions."""

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec


def weight(*shape: int) -> torch.Tensor:
    """Returns fixed weights."""
    return torch.linspace(-1, 1, torch.Size(shape).numel()).sin().reshape(shape)


TRACED = (False, False, False, False)
"""The arguments that tracing to TorchScript appends to a convolution's own: cuDNN's settings."""

CASES = [
    op_case(
        "aten._convolution.default",
        "batch 3 length 9",
        function=lambda x: torch.ops.aten._convolution.default(
            x, weight(4, 3, 2, 3), weight(4), [1, 2], [1, 0], [1, 1], False, [0, 0], 1, *TRACED
        ),
    ),
    op_case(
        "aten._convolution.deprecated",
        "batch 3 5 9",
        function=lambda x: torch.ops.aten._convolution.deprecated(
            x, weight(3, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1, *TRACED[:3]
        ),
    ),
    *[
        decomposition_case(
            f"aten.conv{count}d.{overload}",
            TensorSpec(" ".join(["3", "4", *["5", "4", "6"][-count:]]), torch.int64),
            TensorSpec(" ".join(["6", str(4 // groups), *"322"[:count]]), torch.int64),
            TensorSpec("6", torch.int64),
            *(
                [1 if padding == "same" else 2] * count,
                padding,
                [2] * count if overload == "default" else [1] * count,
            ),
            groups,
            label=f"int-{padding}",
        )
        for count, overload, padding, groups in (
            (1, "default", [2], 2),
            (2, "default", [1, 2], 1),
            (3, "default", [2, 1, 2], 2),
            (2, "padding", "valid", 2),
            (3, "padding", "same", 1),
        )
    ],
    decomposition_case(
        "aten.conv2d.default",
        TensorSpec("batch 4 length 5", torch.int64),
        TensorSpec("6 4 2 3", torch.int64),
        None,
        [1, 1],
        [1, 0],
        label="int-varying",
    ),
    decomposition_case(
        "aten.conv1d.padding",
        TensorSpec("4 length", torch.int64),
        TensorSpec("6 4 3", torch.int64),
        None,
        [1],
        "same",
        label="int-same",
    ),
    *[
        decomposition_case(
            f"aten.conv_transpose{count}d.{'default' if count == 1 else 'input'}",
            TensorSpec(" ".join(["batch", "4", *["3", "4", "length"][-count:]]), torch.int64),
            TensorSpec(" ".join(["4", "3", *"322"[:count]]), torch.int64),
            TensorSpec("6", torch.int64),
            [2] * count,
            [1] * count,
            [1] * count,
            2,
            [1] * count,
            label="int",
        )
        for count in (1, 2, 3)
    ],
    *[
        op_case(
            "aten.conv_transpose1d.default",
            "batch 2 length",
            function=lambda x, bias=bias: F.conv_transpose1d(
                x, weight(2, 3, 3), bias, stride=3, output_padding=2, padding=1
            ),
            label=f"output-padding-{label}",
        )
        for label, bias in (("alone", None), ("bias", weight(3)))
    ],
    op_case(
        "aten.conv_transpose2d.input",
        "batch 2 length 4",
        "3",
        function=lambda x, bias: F.conv_transpose2d(
            x, weight(2, 3, 3, 3), bias, stride=(3, 2), output_padding=(2, 1), padding=(0, 1)
        ),
        label="output-padding",
    ),
    op_case(
        "aten.conv1d.default",
        "batch 3 9",
        function=lambda x: F.conv1d(x, weight(4, 3, 3), weight(4), 2, 1),
    ),
    op_case(
        "aten.conv2d.default",
        "batch 3 length 9",
        function=lambda x: F.conv2d(x, weight(4, 3, 2, 3), weight(4), (1, 2), (1, 0)),
    ),
    op_case(
        "aten.conv2d.default",
        "3 9 9",
        function=lambda x: F.conv2d(x, weight(4, 3, 3, 3)),
        label="unbatched",
    ),
    op_case(
        "aten.conv2d.default",
        "batch 4 9 9",
        function=lambda x: F.conv2d(x, weight(6, 2, 3, 3), groups=2, dilation=2),
        label="groups-dilation",
    ),
    op_case(
        "aten.conv2d.default",
        "batch 4 9 9",
        "2 4 3 3",
        "2",
        function=torch.conv2d,
        label="dynamic-weight",
    ),
    op_case(
        "aten.conv2d.default",
        TensorSpec("batch 3 9 9", torch.float16),
        function=lambda x: F.conv2d(x, weight(4, 3, 3, 3).half()),
        label="half",
        tolerance=1e-2,
    ),
    op_case(
        "aten.conv3d.default",
        "batch 2 5 5 5",
        function=lambda x: F.conv3d(x, weight(3, 2, 2, 2, 2), stride=2),
    ),
    op_case(
        "aten.conv1d.padding",
        "batch 3 length",
        function=lambda x: F.conv1d(x, weight(4, 3, 4), padding="same"),
    ),
    op_case(
        "aten.conv2d.padding",
        "batch 3 length 9",
        function=lambda x: F.conv2d(x, weight(4, 3, 2, 3), padding="same"),
    ),
    op_case(
        "aten.conv3d.padding",
        "batch 2 5 5 5",
        function=lambda x: F.conv3d(x, weight(3, 2, 2, 2, 2), padding="valid"),
    ),
    op_case(
        "aten.convolution.default",
        "batch 3 9 9",
        function=lambda x: torch.ops.aten.convolution(
            x, weight(4, 3, 3, 3), None, [2], [1], [1], False, [0], 1
        ),
    ),
    op_case(
        "aten.convolution.default",
        "batch 3 9 9",
        function=lambda x: torch.ops.aten.convolution(
            x, weight(3, 4, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1
        ),
        label="transposed",
    ),
    op_case(
        "aten.conv_transpose1d.default",
        "batch 3 length",
        function=lambda x: F.conv_transpose1d(x, weight(3, 4, 3), weight(4), stride=2),
    ),
    op_case(
        "aten.conv_transpose2d.input",
        "batch 4 length 5",
        function=lambda x: F.conv_transpose2d(x, weight(4, 3, 3, 3), weight(6), 2, 1, 1, 2),
    ),
    op_case(
        "aten.conv_transpose3d.input",
        "batch 2 3 3 3",
        function=lambda x: F.conv_transpose3d(x, weight(2, 3, 2, 2, 2), stride=2),
    ),
]
