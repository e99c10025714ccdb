"""Cases of the largest and smallest elements."""

import torch

from ..harness import T, case

F16, BOOL = torch.float16, torch.bool

CASES = [
    *[
        case(f"aten.{name}.default", "b 5 s", *args, label=label)
        for name in ("argmax", "argmin")
        for label, args in (
            ("all", ()),
            ("dim", (1,)),
            ("keep", (-1, True)),
            ("all-keep", (None, True)),
        )
    ],
    case("aten.argmax.default", "", label="scalar"),
    case("aten.argmax.default", "2 3 1 2 b 1", 0, label="far-dimension"),
    *[case(f"aten.{name}.dim", "b 5", 1, label="dim") for name in ("max", "min")],
    case("aten.max.dim", "b 5", 0, True, label="keep"),
    case("aten.max.dim", T("4 5", BOOL), 1, function=lambda x, d: torch.max(x, d)[0], label="bool"),
    case("aten.topk.default", "b 9", 3),
    case("aten.topk.default", "9 b", 2, 0, False, label="smallest-first-dim"),
    case("aten.topk.default", T("7", F16), 7, label="vector-half"),
    case("aten.sort.default", "b 9"),
    case("aten.sort.default", "9 b", 0, True, label="descending"),
    case("aten.sort.stable", T(values=[3.0, 1.0, 3.0, 1.0]), stable=True),
    case("aten.argsort.default", "b 9", -1, True),
    case("aten.argsort.stable", T(values=[3.0, 1.0, 3.0, 1.0]), stable=True),
]
