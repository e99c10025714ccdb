"""What TensorRT 8.6.0 was seen to move, choose, resize and repeat: the reference must do the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from plugins.reference.tests.observed import (
    I32,
    NAN,
    NO_CONTEXT,
    REFUSED,
    arange,
    assert_observed,
    bools,
    concat,
    conditional,
    counted,
    cumulative_sum,
    dynamic_slice,
    expanded,
    fill,
    flattened,
    floats,
    gather,
    grid_sample,
    ints,
    loop,
    nonzero,
    of_shape,
    one_hot,
    positions,
    resize,
    reversed_rows,
    scatter,
    select,
    shuffle,
    sliced,
    suppressed,
    topk,
    topk_sum,
)

CASES: list[tuple[str, Any, Any]] = [
    ("gather negative", gather(floats(10, 20, 30), [-1, 0]), floats(30, 10)),
    ("gather out of range", gather(floats(10, 20, 30), [3, 7]), floats(0, 0)),
    ("gather negative, dynamic", gather(floats(10, 20, 30), [-1, 0], shape=(-1,)), floats(30, 10)),
    ("gather by a scalar", gather(floats(10, 20, 30), 1), torch.tensor(20.0)),
    ("gather bool", gather(bools(True, False), [0, 1]), bools(True, False)),
    (
        "gather ELEMENT smaller",
        gather(arange(2, 3), [[1, 1]], "ELEMENT", 0),
        torch.tensor([[3.0, 4.0]]),
    ),
    (
        "gather ELEMENT negative",
        gather(arange(1, 2), [[-1, 0]], "ELEMENT", 1),
        torch.tensor([[1.0, 0.0]]),
    ),
    ("gather ND", gather(arange(2, 3), [[1, 2], [0, 0]], "ND"), floats(5, 0)),
    ("slice out of bounds", sliced(floats(1, 2, 3), (1,), (3,), (1,)), REFUSED),
    ("slice to nothing beyond the end", sliced(floats(1, 2, 3), (4,), (0,), (1,)), REFUSED),
    ("slice to nothing", sliced(floats(1, 2, 3), (1,), (0,), (1,)), floats()),
    ("slice backwards", sliced(floats(1, 2, 3), (2,), (3,), (-1,)), floats(3, 2, 1)),
    ("slice with stride 0", sliced(floats(1, 2, 3), (1,), (4,), (0,)), floats(2, 2, 2, 2)),
    ("slice WRAP", sliced(floats(1, 2, 3), (-1,), (5,), (1,), "WRAP"), floats(3, 1, 2, 3, 1)),
    ("slice CLAMP", sliced(floats(1, 2, 3), (-2,), (6,), (1,), "CLAMP"), floats(1, 1, 1, 2, 3, 3)),
    (
        "slice REFLECT",
        sliced(floats(1, 2, 3), (-2,), (7,), (1,), "REFLECT"),
        floats(3, 2, 1, 2, 3, 2, 1),
    ),
    (
        "slice FILL default",
        sliced(floats(1, 2, 3), (-1,), (5,), (1,), "FILL"),
        floats(0, 1, 2, 3, 0),
    ),
    (
        "slice FILL 9",
        sliced(floats(1, 2, 3), (-1,), (5,), (1,), "FILL", 9.0),
        floats(9, 1, 2, 3, 9),
    ),
    ("slice FILL int32", sliced(ints(1, 2, 3), (-1,), (5,), (1,), "FILL"), ints(0, 1, 2, 3, 0)),
    ("slice bool", sliced(bools(True, False, True), (1,), (2,), (1,)), bools(False, True)),
    ("slice WRAP int32", sliced(ints(1, 2, 3), (-1,), (5,), (1,), "WRAP"), ints(3, 1, 2, 3, 1)),
    ("topk of rank 1", topk(floats(1, 2), 1, 1), REFUSED),
    ("topk ties", topk(torch.ones(1, 4), 4, 2), (torch.ones(1, 4), ints(0, 1, 2, 3)[None])),
    ("topk int32", topk(ints(1, 2)[None], 1, 2), REFUSED),
    ("topk with k > 3840", topk(torch.ones(1, 5000), 3841, 2), REFUSED),
    ("topk with k > dimension", topk(torch.ones(1, 4), 5, 2), REFUSED),
    ("topk NaN", topk(floats(1, NAN, 3)[None], 2, 2), (floats(3, 1)[None], ints(2, 0)[None])),
    ("linspace", fill((4,), 1.0, 2.0), floats(1, 3, 5, 7)),
    ("linspace int32", fill((4,), 1.0, 2.0, "INT32"), ints(1, 3, 5, 7)),
    ("linspace default", fill((4,)), floats(0, 1, 2, 3)),
    ("linspace of rank 2", fill((2, 2), 1.0, 2.0), REFUSED),
    ("reshape to (0, -1)", shuffle(torch.ones(2, 3, 4), (0, -1)), torch.ones(2, 12)),
    ("reshape with two -1", shuffle(torch.ones(2, 3), (-1, -1)), REFUSED),
    ("reshape to another volume", shuffle(torch.ones(2, 3), (5,)), REFUSED),
    ("reshape to a scalar", shuffle(torch.ones(1), ()), torch.tensor(1.0)),
    ("reshape (0, 3) to (0, 0)", shuffle(torch.ones(0, 3), (0, 0), zero_is_length=True), REFUSED),
    ("transpose of (0, 3)", shuffle(torch.ones(0, 3), first=(1, 0)), torch.ones(3, 0)),
    ("transpose, then reshape", shuffle(arange(2, 3), (6,), (1, 0)), floats(0, 3, 1, 4, 2, 5)),
    (
        "scatter ND",
        scatter(torch.zeros(3, 2), [[0], [2]], torch.ones(2, 2), "ND"),
        torch.tensor([[1.0, 1], [0, 0], [1, 1]]),
    ),
    (
        "scatter ELEMENT",
        scatter(torch.zeros(2, 3), [[0, 0, 0]], torch.tensor([[0.0, 0, 1]])),
        torch.tensor([[0.0, 0, 1], [0, 0, 0]]),
    ),
    (
        "scatter ELEMENT negative",
        scatter(torch.zeros(2, 3), [[-2, -2, -2]], torch.tensor([[0.0, 0, 1]])),
        torch.tensor([[0.0, 0, 1], [0, 0, 0]]),
    ),
    ("scatter bool", scatter(bools(False, False), [1], bools(True)), bools(False, True)),
    ("scatter duplicates", scatter(torch.zeros(3), [0, 1, 0], floats(6, 5, 7)), floats(7, 5, 0)),
    (
        "scatter ELEMENT smaller",
        scatter(torch.zeros(3, 3), [[0], [2]], torch.ones(2, 1)),
        torch.tensor([[1.0, 0, 0], [0, 0, 0], [1, 0, 0]]),
    ),
    (
        "select bool",
        select(bools(True, False), bools(True, True), bools(False, False)),
        bools(True, False),
    ),
    ("select rank mismatch", select(bools(True), torch.ones(2, 2), torch.ones(2, 2)), REFUSED),
    (
        "select broadcast",
        select(bools(True, False)[:, None], torch.ones(2, 2), torch.zeros(1, 1)),
        torch.tensor([[1.0, 1], [0, 0]]),
    ),
    ("concat scalars", concat(torch.tensor(1.0), torch.tensor(2.0)), REFUSED),
    ("concat mixed types", concat(floats(1), ints(1)), REFUSED),
    ("concat bool", concat(bools(True), bools(False)), bools(True, False)),
    ("concat empty", concat(torch.ones(0, 2), torch.ones(1, 2)), torch.ones(1, 2)),
    ("shape", lambda n: n.net.add_shape(n.input(torch.ones(2, 3))), ints(2, 3)),
    (
        "resize LINEAR unset",
        resize("LINEAR", None, arange(1, 1, 1, 4), (1, 1, 1, 6)),
        floats(0, 0.5, 1.1667, 1.8333, 2.5, 3),
    ),
    (
        "resize NEAREST unset",
        resize("NEAREST", None, arange(1, 1, 1, 4), (1, 1, 1, 6)),
        floats(0, 0, 1, 2, 2, 3),
    ),
    (
        "resize NEAREST of four dimensions",
        resize("NEAREST", None, torch.ones(1, 1, 1, 4), (2, 2, 2, 6)),
        torch.ones(2, 2, 2, 6),
    ),
    (
        "resize int32",
        resize("NEAREST", None, torch.ones(1, 1, 1, 4, dtype=I32), (1, 1, 1, 6)),
        REFUSED,
    ),
    (
        "resize by scales",
        resize("NEAREST", None, arange(1, 1, 1, 4), scales=(1.0, 1.0, 1.0, 1.5)),
        floats(0, 0, 1, 2, 2, 3),
    ),
    (
        "resize LINEAR 2-D",
        resize("LINEAR", "ASYMMETRIC", arange(1, 1, 2, 2), (1, 1, 3, 3)),
        floats(0, 0.6667, 1, 1.3333, 2, 2.3333, 2, 2.6667, 3).view(1, 1, 3, 3),
    ),
    ("nonzero, static, without a profile", nonzero(torch.tensor([[1.0, 0], [0, 2]])), NO_CONTEXT),
    (
        "nonzero, static",
        nonzero(torch.tensor([[1.0, 0], [0, 2]])),
        torch.tensor([[0, 1], [0, 1]], dtype=I32),
    ),
    (
        "nonzero, dynamic",
        nonzero(torch.tensor([[1.0, 0], [0, 2]]), (-1, 2)),
        torch.tensor([[0, 1], [0, 1]], dtype=I32),
    ),
    (
        "nonzero bool",
        nonzero(torch.tensor([[True, False]]), (-1, 2)),
        torch.tensor([[0], [0]], dtype=I32),
    ),
    ("nonzero of zeros", nonzero(torch.zeros(2, 2), (-1, 2)), torch.empty(2, 0, dtype=I32)),
    ("one-hot", one_hot, torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 1]])),
    ("dynamic slice", dynamic_slice(2), torch.tensor([[2.0, 3], [4, 5]])),
    ("dynamic slice to nothing", dynamic_slice(0), torch.empty(0, 2)),
    ("shape FLOOR_DIV", of_shape("FLOOR_DIV"), ints(1, 1)),
    ("shape DIV", of_shape("DIV"), ints(1, 1)),
    ("shape PROD", of_shape("PROD"), ints(6, 4)),
    ("shape MAX", of_shape("MAX"), ints(3, 2)),
    ("shape POW", of_shape("POW"), REFUSED),
    ("shape EQUAL", of_shape("EQUAL"), bools(False, True)),
    ("topk along axis 0 of rank 5", topk(torch.ones(2, 1, 1, 1, 1), 1, 1), REFUSED),
    (
        "topk argmax of ties",
        topk(floats(1, 3, 3)[None], 1, 2),
        (torch.tensor([[3.0]]), ints(1)[None]),
    ),
    ("topk of 3840 from 5000", topk_sum, torch.tensor([3840.0])),
    ("expand by stride 0", expanded, torch.ones(3, 2)),
    ("reshape to the product of a shape", flattened, arange(6)),
    ("dynamic int32 range", counted, ints(0, 1, 2, 3)),
    ("nonzero, then transpose", positions(True), torch.tensor([[0, 0], [1, 1]], dtype=I32)),
    ("nonzero, then gather", positions(False), floats(1, 2)),
    ("nms, static, without a profile", suppressed, NO_CONTEXT),
    ("gather nothing", gather(torch.ones(3, 2), np.zeros((0,), np.int32)), torch.ones(0, 2)),
    (
        "reverse sequence",
        lambda n: reversed_rows(n),
        torch.tensor([[1.0, 0, 2], [5, 4, 3]]),
    ),
    ("grid sample NEAREST", grid_sample("NEAREST", False), floats(0, 5, 0).view(1, 1, 1, 3)),
    ("grid sample NEAREST aligned", grid_sample("NEAREST", True), floats(0, 5, 8).view(1, 1, 1, 3)),
    ("grid sample LINEAR", grid_sample("LINEAR", False), floats(0, 4.75, 0.32).view(1, 1, 1, 3)),
    (
        "grid sample LINEAR aligned",
        grid_sample("LINEAR", True),
        floats(0, 4.5, 5.12).view(1, 1, 1, 3),
    ),
    (
        "grid sample CUBIC",
        grid_sample("CUBIC", False),
        floats(-0.1875, 5.3359, 0.2647).view(1, 1, 1, 3),
    ),
    (
        "grid sample CUBIC aligned",
        grid_sample("CUBIC", True),
        floats(0, 5.0625, 5.7482).view(1, 1, 1, 3),
    ),
    (
        "grid sample LINEAR CLAMP",
        grid_sample("LINEAR", False, "CLAMP"),
        floats(0, 4.75, 8).view(1, 1, 1, 3),
    ),
    (
        "grid sample LINEAR REFLECT",
        grid_sample("LINEAR", False, "REFLECT"),
        floats(0, 4.75, 8).view(1, 1, 1, 3),
    ),
    ("loop LAST_VALUE", loop("LAST_VALUE", 3), floats(4, 8)),
    ("loop CONCATENATE", loop("CONCATENATE", 3), torch.tensor([[2.0, 4], [3, 6], [4, 8]])),
    ("loop REVERSE", loop("REVERSE", 3), REFUSED),
    ("loop without trips", loop("LAST_VALUE", 0), floats(1, 2)),
    ("running sum by a loop", cumulative_sum(None), torch.tensor([[0.0, 1], [2, 4], [6, 9]])),
    (
        "running sum by a dynamic loop",
        cumulative_sum((-1, 2)),
        torch.tensor([[0.0, 1], [2, 4], [6, 9]]),
    ),
    ("conditional, true", conditional(True), floats(2.7183, 7.3891)),
    ("conditional, false", conditional(False), floats(1, 2)),
]
RESIZED = {
    ("NEAREST", "ASYMMETRIC"): ([0, 0, 1, 2, 2, 3], [0, 1, 2]),
    ("NEAREST", "HALF_PIXEL"): ([0, 0, 1, 1, 2, 3], [0, 1, 2]),
    ("NEAREST", "ALIGN_CORNERS"): ([0, 0, 1, 1, 2, 3], [0, 1, 3]),
    ("LINEAR", "ASYMMETRIC"): ([0, 0.6667, 1.3333, 2, 2.6667, 3], [0, 1.3333, 2.6667]),
    ("LINEAR", "HALF_PIXEL"): ([0, 0.5, 1.1667, 1.8333, 2.5, 3], [0.1667, 1.5, 2.8333]),
    ("LINEAR", "ALIGN_CORNERS"): ([0, 0.6, 1.2, 1.8, 2.4, 3], [0, 1.5, 3]),
    ("CUBIC", "ASYMMETRIC"): ([0, 0.5741, 1.3704, 2, 2.7407, 3.1111], [0, 1.3704, 2.7407]),
    ("CUBIC", "HALF_PIXEL"): (
        [-0.0868, 0.4063, 1.2130, 1.7870, 2.5938, 3.0868],
        [0.1262, 1.5, 2.8738],
    ),
    ("CUBIC", "ALIGN_CORNERS"): ([0, 0.504, 1.248, 1.752, 2.496, 3], [0, 1.5, 3]),
}
for (mode, transformation), (larger, smaller) in RESIZED.items():
    for values in (larger, smaller):
        CASES.append(
            (
                f"resize {mode} {transformation} to {len(values)}",
                resize(mode, transformation, arange(1, 1, 1, 4), (1, 1, 1, len(values))),
                floats(*values),
            )
        )


@pytest.mark.parametrize(("name", "make", "expected"), CASES, ids=[case[0] for case in CASES])
def test_the_reference_does_what_tensorrt_8_6_was_seen_to_do(
    bench: Any, name: str, make: Any, expected: Any
) -> None:
    """Acceptance, shape, type and values of one small network agree with the observation."""
    assert_observed(bench, name, make, expected)


def test_a_profile_serves_one_context_unless_it_may_be_shared(bench: Any) -> None:
    """A second context has no profile; the real one crashes where its shapes are set."""
    for shared in (False, True):
        n = bench("8.6.0")
        x = n.net.add_input("x", n.trt.DataType.FLOAT, (-1,))
        n.net.mark_output(n.net.add_unary(x, n.trt.UnaryOperation.NEG).get_output(0))
        config = n.builder.create_builder_config()
        profile = n.builder.create_optimization_profile()
        profile.set_shape("x", (1,), (2,), (4,))
        config.add_optimization_profile(profile)
        config.set_preview_feature(n.trt.PreviewFeature.PROFILE_SHARING_0806, shared)
        plan = n.builder.build_serialized_network(n.net, config)
        engine = n.trt.Runtime(n.logger).deserialize_cuda_engine(plan)
        first, second = engine.create_execution_context(), engine.create_execution_context()
        assert first.set_input_shape("x", (3,))
        assert second.active_optimization_profile == (0 if shared else -1)
        assert second.set_input_shape("x", (3,)) is shared
        del first
        assert engine.create_execution_context().active_optimization_profile == 0
