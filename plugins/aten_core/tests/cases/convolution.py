"""Cases of convolutions."""

import torch
import torch.nn.functional as F

from ..harness import T, case, decomposed


def weight(*shape):
    """Returns fixed weights."""
    return torch.linspace(-1, 1, torch.Size(shape).numel()).sin().reshape(shape)


TRACED = (False, False, False, False)
"""What tracing to TorchScript writes after a convolution's own arguments: cuDNN's settings."""

CASES = [
    case(
        "aten._convolution.default",
        "b 3 s 9",
        function=lambda x: torch.ops.aten._convolution.default(
            x, weight(4, 3, 2, 3), weight(4), [1, 2], [1, 0], [1, 1], False, [0, 0], 1, *TRACED
        ),
    ),
    case(
        "aten._convolution.deprecated",
        "b 3 5 9",
        function=lambda x: torch.ops.aten._convolution.deprecated(
            x, weight(3, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1, *TRACED[:3]
        ),
    ),
    *[
        decomposed(
            f"aten.conv{count}d.{overload}",
            T(" ".join(["3", "4", *["5", "4", "6"][-count:]]), torch.int64),
            T(" ".join(["6", str(4 // groups), *"322"[:count]]), torch.int64),
            T("6", torch.int64),
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
    decomposed(
        "aten.conv2d.default",
        T("b 4 s 5", torch.int64),
        T("6 4 2 3", torch.int64),
        None,
        [1, 1],
        [1, 0],
        label="int-varying",
    ),
    decomposed(
        "aten.conv1d.padding",
        T("4 s", torch.int64),
        T("6 4 3", torch.int64),
        None,
        [1],
        "same",
        label="int-same",
    ),
    *[
        decomposed(
            f"aten.conv_transpose{count}d.{'default' if count == 1 else 'input'}",
            T(" ".join(["b", "4", *["3", "4", "s"][-count:]]), torch.int64),
            T(" ".join(["4", "3", *"322"[:count]]), torch.int64),
            T("6", torch.int64),
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
        case(
            "aten.conv_transpose1d.default",
            "b 2 s",
            function=lambda x, bias=bias: F.conv_transpose1d(
                x, weight(2, 3, 3), bias, stride=3, output_padding=2, padding=1
            ),
            label=f"output-padding-{label}",
        )
        for label, bias in (("alone", None), ("bias", weight(3)))
    ],
    case(
        "aten.conv_transpose2d.input",
        "b 2 s 4",
        "3",
        function=lambda x, bias: F.conv_transpose2d(
            x, weight(2, 3, 3, 3), bias, stride=(3, 2), output_padding=(2, 1), padding=(0, 1)
        ),
        label="output-padding",
    ),
    case(
        "aten.conv1d.default",
        "b 3 9",
        function=lambda x: F.conv1d(x, weight(4, 3, 3), weight(4), 2, 1),
    ),
    case(
        "aten.conv2d.default",
        "b 3 s 9",
        function=lambda x: F.conv2d(x, weight(4, 3, 2, 3), weight(4), (1, 2), (1, 0)),
    ),
    case(
        "aten.conv2d.default",
        "3 9 9",
        function=lambda x: F.conv2d(x, weight(4, 3, 3, 3)),
        label="unbatched",
    ),
    case(
        "aten.conv2d.default",
        "b 4 9 9",
        function=lambda x: F.conv2d(x, weight(6, 2, 3, 3), groups=2, dilation=2),
        label="groups-dilation",
    ),
    case(
        "aten.conv2d.default",
        "b 4 9 9",
        "2 4 3 3",
        "2",
        function=torch.conv2d,
        label="dynamic-weight",
    ),
    case(
        "aten.conv2d.default",
        T("b 3 9 9", torch.float16),
        function=lambda x: F.conv2d(x, weight(4, 3, 3, 3).half()),
        label="half",
        tolerance=1e-2,
    ),
    case(
        "aten.conv3d.default",
        "b 2 5 5 5",
        function=lambda x: F.conv3d(x, weight(3, 2, 2, 2, 2), stride=2),
    ),
    case(
        "aten.conv1d.padding",
        "b 3 s",
        function=lambda x: F.conv1d(x, weight(4, 3, 4), padding="same"),
    ),
    case(
        "aten.conv2d.padding",
        "b 3 s 9",
        function=lambda x: F.conv2d(x, weight(4, 3, 2, 3), padding="same"),
    ),
    case(
        "aten.conv3d.padding",
        "b 2 5 5 5",
        function=lambda x: F.conv3d(x, weight(3, 2, 2, 2, 2), padding="valid"),
    ),
    case(
        "aten.convolution.default",
        "b 3 9 9",
        function=lambda x: torch.ops.aten.convolution(
            x, weight(4, 3, 3, 3), None, [2], [1], [1], False, [0], 1
        ),
    ),
    case(
        "aten.convolution.default",
        "b 3 9 9",
        function=lambda x: torch.ops.aten.convolution(
            x, weight(3, 4, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1
        ),
        label="transposed",
    ),
    case(
        "aten.conv_transpose1d.default",
        "b 3 s",
        function=lambda x: F.conv_transpose1d(x, weight(3, 4, 3), weight(4), stride=2),
    ),
    case(
        "aten.conv_transpose2d.input",
        "b 4 s 5",
        function=lambda x: F.conv_transpose2d(x, weight(4, 3, 3, 3), weight(6), 2, 1, 1, 2),
    ),
    case(
        "aten.conv_transpose3d.input",
        "b 2 3 3 3",
        function=lambda x: F.conv_transpose3d(x, weight(2, 3, 2, 2, 2), stride=2),
    ),
]
