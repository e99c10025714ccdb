"""torchvision's operators give what they are defined to give, on every TensorRT."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function
from tests.support.shards import some

from .vision import ops


def compiled(function, inputs, dynamic_shapes=None):
    """Returns the function compiled with nothing left in PyTorch."""
    shapes = None if dynamic_shapes is None else (tuple(dynamic_shapes),)
    program = torch.export.export(Function(function).eval(), inputs, dynamic_shapes=shapes)
    return torchtrt.compile(program, require_full_compilation=True)


def boxes(count, size=60.0, seed=0):
    """Returns boxes of which many overlap: ``(count, 4)``."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * size
    return torch.cat([corner, corner + 4 + torch.rand(count, 2, generator=generator) * 25], 1)


def scores(count, seed=0):
    """Returns scores of which several are equal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, max(count // 2, 1), (count,), generator=generator) / 50.0


def suppress(threshold):
    """Returns NMS of boxes and scores as a function."""
    return lambda boxes, scores: ops.nms(boxes, scores, threshold)


SAME = torch.tensor([[0.0, 0, 10, 10]]).repeat(5, 1)
CHAIN = torch.stack([torch.tensor([2.0 * i, 0, 2.0 * i + 10, 10]) for i in range(20)])
ODD = torch.tensor(
    [
        [5.0, 5, 5, 5],  # no area
        [5.0, 5, 5, 5],
        [8, 8, 2, 2],  # corners the other way round
        [1, 1, 9, 9],
        [8, 1, 2, 9],  # one side the other way round
        [1.5, 1, 9, 9],
        [0, 0, 0, 20],
    ]
)
NMS = {
    "many": (boxes(200), scores(200), 0.5),
    "half-overlap": (SAME.clone(), torch.tensor([0.1, 0.5, 0.5, 0.2, 0.5]), 0.5),
    "at-the-threshold": (
        torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 7], [0, 0, 10, 5]]),
        torch.tensor([0.9, 0.8, 0.7]),
        0.7,
    ),
    "chain": (CHAIN, torch.linspace(1, 0, 20), 0.5),
    "chain-of-ties": (CHAIN, torch.ones(20), 0.5),
    "odd": (ODD, torch.linspace(1, 0, 7), 0.3),
    "none-stays-but-one": (SAME, torch.arange(5.0), 0.0),
    "all-stay": (boxes(30), scores(30), 1.0),
    "one": (boxes(1), scores(1), 0.5),
    "two": (SAME[:2], torch.tensor([0.0, 0.0]), 0.5),
    "infinite": (boxes(6), torch.tensor([-torch.inf, 1, torch.inf, 0, 1, -torch.inf]), 0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "half"])
@pytest.mark.parametrize("name", NMS)
def test_nms_keeps_the_same_boxes_in_the_same_order(name, dtype, version):
    """Ties, thresholds that are met exactly, boxes without area and chains of overlaps included."""
    dets, values, threshold = NMS[name]
    inputs = dets.to(dtype), values.to(dtype)

    engine = compiled(suppress(threshold), inputs)

    assert ops.nms(*inputs, threshold).tolist() == engine(*inputs).tolist()
    assert torch.int64 is engine(*inputs).dtype


def test_nms_of_a_number_of_boxes_that_varies(version):
    """From one box on, with one engine."""
    count = torch.export.Dim("count", min=2, max=300)
    engine = compiled(suppress(0.4), (boxes(50), scores(50)), ({0: count}, {0: count}))

    for size in (2, 3, 50, 299):
        inputs = boxes(size, seed=size), scores(size, seed=size)
        assert ops.nms(*inputs, 0.4).tolist() == engine(*inputs).tolist()


@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
def test_nms_of_no_boxes_keeps_none(version):
    """A number that is known to be 0 leaves nothing to compute."""
    inputs = torch.zeros(0, 4), torch.zeros(0)
    program = torch.export.export(Function(suppress(0.5)).eval(), inputs)

    assert [] == torchtrt.compile(program)(*inputs).tolist()


def test_nms_of_a_number_of_boxes_that_depends_on_data():
    """Boxes above a score, where TensorRT returns their number; elsewhere the report has the reason."""

    def select(boxes, scores):
        good = scores > 0.3
        return ops.nms(boxes[good], scores[good], 0.5)

    inputs = boxes(60), scores(60)
    for version in ("10.16.1", "11.4.0"):
        with torchtrt.use_tensorrt(f"reference@{version}"):
            engine = compiled(select, inputs)
            assert select(*inputs).tolist() == engine(*inputs).tolist()
            none = inputs[0], inputs[1] * 0
            assert [] == engine(*none).tolist()
    with torchtrt.use_tensorrt("reference@8.6.0"):
        program = torch.export.export(Function(select).eval(), inputs)
        engine = torchtrt.compile(program, min_block_size=1)
        assert select(*inputs).tolist() == engine(*inputs).tolist()
        reasons = {row.op: row.reason for row in engine.report.in_torch}
        assert "does not return a size that depends on data" in reasons["torchvision.nms.default"]


def test_too_many_boxes_stay_in_pytorch_with_the_reason():
    """Each box is compared with each."""
    inputs = boxes(9000), scores(9000)
    program = torch.export.export(Function(suppress(0.5)).eval(), inputs)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        report = torchtrt.compile(program, dryrun=True, min_block_size=1).report

    assert "up to 9000 boxes" in report.in_torch[0].reason


def batched(boxes, scores, classes):
    """``torchvision.ops.batched_nms`` as it is when it is traced: boxes of each class have a place of their own."""
    offsets = classes.to(boxes) * (boxes.max() + torch.tensor(1.0).to(boxes))
    return ops.nms(boxes + offsets[:, None], scores, 0.5)


def test_batched_nms_compiles_as_it_is_traced(version):
    """Boxes of other classes do not touch."""
    inputs = boxes(80), scores(80), torch.arange(80) % 3

    engine = compiled(batched, inputs)

    assert batched(*inputs).tolist() == engine(*inputs).tolist()


# Regions

ROIS = torch.tensor(
    [
        [0, 2.3, 3.1, 9.7, 12.2],
        [1, 0.0, 0.0, 15.9, 13.9],
        [0, -6.0, -4.0, 3.0, 2.5],  # partly outside
        [1, 12.0, 10.0, 31.0, 40.0],
        [0, 50.0, 60.0, 70.0, 75.0],  # outside
        [1, 7.2, 7.2, 7.2, 7.2],  # no area
        [0, 9.0, 8.0, 4.0, 3.0],  # the other way round
        [1, 3.0, 3.0, 3.4, 3.2],
    ]
)
IMAGES = torch.randn(2, 3, 14, 16, generator=torch.Generator().manual_seed(0))
MANY = torch.randn(2, 12, 14, 16, generator=torch.Generator().manual_seed(0))
REGIONS = {
    "align": (lambda x, r: ops.roi_align(x, r, 1.0, 3, 4, 2, False), IMAGES),
    "align-aligned": (lambda x, r: ops.roi_align(x, r, 0.5, 2, 2, 3, True), IMAGES),
    "align-one": (lambda x, r: ops.roi_align(x, r, 0.25, 1, 1, 1, True), IMAGES),
    "align-tiny-image": (
        lambda x, r: ops.roi_align(x, r, 1.0, 2, 2, 2, False),
        IMAGES[:, :, :1, :1],
    ),
    "ps-align": (lambda x, r: ops.ps_roi_align(x, r, 1.0, 2, 3, 2), MANY),
    "ps-align-values": (lambda x, r: ops.ps_roi_align(x, r, 0.5, 2, 2, 1)[0], MANY),
    "pool": (lambda x, r: ops.roi_pool(x, r, 1.0, 3, 2), IMAGES),
    "pool-scaled": (lambda x, r: ops.roi_pool(x, r, 0.5, 2, 2), IMAGES),
    "pool-values": (lambda x, r: ops.roi_pool(x, r, 1.0, 7, 7)[0], IMAGES),
    "ps-pool": (lambda x, r: ops.ps_roi_pool(x, r, 1.0, 2, 3), MANY),
    "ps-pool-scaled": (lambda x, r: ops.ps_roi_pool(x, r, 0.5, 2, 2), MANY),
    "ps-pool-one": (lambda x, r: ops.ps_roi_pool(x, r, 1.0, 1, 1)[0], IMAGES),
    "ps-pool-tiny-image": (lambda x, r: ops.ps_roi_pool(x, r, 1.0, 2, 2)[0], MANY[..., :1, :1]),
    "pool-ties": (lambda x, r: ops.roi_pool(x, r, 1.0, 2, 2), IMAGES.round()),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float32) for name in REGIONS),
        *some(((name, torch.float16) for name in REGIONS), 4),
    ],
    ids=str,
)
def test_regions_are_pooled_as_defined(name, dtype, version):
    """Several images, boxes beyond the image, without area and turned round."""
    function, images = REGIONS[name]
    inputs = images.to(dtype), ROIS.to(dtype)

    engine = compiled(function, inputs)

    tolerance = 1e-4 if dtype is torch.float32 else 5e-3
    torch.testing.assert_close(engine(*inputs), function(*inputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["align", "ps-align", "pool", "ps-pool"])
def test_the_number_of_regions_may_vary(name, version):
    """With one engine."""
    function, images = REGIONS[name]
    count = torch.export.Dim("count", min=1, max=20)
    engine = compiled(function, (images, ROIS), ({}, {0: count}))

    for size in (1, 2, 8):
        inputs = images, ROIS[:size].clone()
        torch.testing.assert_close(engine(*inputs), function(*inputs), rtol=1e-4, atol=1e-4)


def test_the_size_of_the_images_may_vary(version):
    """For RoIAlign, which looks at four pixels around each point."""
    height, width = (torch.export.Dim(name, min=4, max=40) for name in ("height", "width"))
    function, images = REGIONS["align"]
    engine = compiled(function, (images, ROIS), ({2: height, 3: width}, {}))

    for size in ((14, 16), (5, 31)):
        inputs = torch.randn(2, 3, *size), ROIS
        torch.testing.assert_close(engine(*inputs), function(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["align", "ps-align", "pool", "ps-pool"])
def test_no_regions_give_no_values(name, version):
    """Of the right shape."""
    function, images = REGIONS[name]
    inputs = images, ROIS[:0].clone()

    engine = compiled(function, inputs)

    for mine, theirs in zip(
        *(x if isinstance(x, tuple) else (x,) for x in (engine(*inputs), function(*inputs))),
        strict=True,
    ):
        assert theirs.shape == mine.shape
        assert theirs.dtype == mine.dtype


def test_a_mean_reads_nothing_outside_of_its_cell(version):
    """Neither NaN nor infinity there is in it, and those inside are."""
    images = MANY.clone()
    images[:, :, 6] = torch.nan
    images[:, :, :, 11] = torch.inf
    inputs = (
        images,
        torch.tensor([[0.0, 1, 1, 5, 6], [1, 8, 2, 14, 6], [0, 1, 7, 10, 13], [1, 2, 2, 9, 9]]),
    )
    function, _ = REGIONS["ps-pool"]

    values, _ = expected = function(*inputs)

    assert values.isnan().any()
    assert values.isinf().any()
    assert values.isfinite().any()
    torch.testing.assert_close(
        compiled(function, inputs)(*inputs), expected, rtol=1e-4, atol=1e-4, equal_nan=True
    )


@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
@pytest.mark.parametrize(
    ("function", "images", "reason"),
    [
        (lambda x, r: ops.roi_align(x, r, 1.0, 2, 2, -1, False), IMAGES, "depends on the boxes"),
        (lambda x, r: ops.roi_pool(x, r, 1.0, 2, 2)[0], torch.zeros(1, 1, 3000, 3000), "too large"),
        (
            lambda x, r: ops.ps_roi_pool(x, r, 1, 1, 1)[0],
            torch.zeros(1, 1, 3000, 3000),
            "too large",
        ),
    ],
    ids=["align", "pool", "ps-pool"],
)
def test_what_is_not_converted_stays_in_pytorch_with_the_reason(function, images, reason):
    """And the result is PyTorch's."""
    inputs = images, ROIS[:2] * torch.tensor([0.0, 1, 1, 1, 1])
    program = torch.export.export(Function(function).eval(), inputs)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        engine = torchtrt.compile(program, min_block_size=1)

    torch.testing.assert_close(engine(*inputs), function(*inputs))
    assert reason in engine.report.in_torch[0].reason


# Deformable convolution


def deformed(groups=1, offset_groups=1, use_mask=True, stride=1, pad=1, dilation=1, channels=4):
    """Returns a deformable convolution, and inputs for it."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    weight, bias = random(6, channels // groups, 3, 2), random(6)
    out_h = (7 + 2 * pad - dilation * 2 - 1) // stride + 1
    out_w = (8 + 2 * pad - dilation * 1 - 1) // stride + 1
    taps = offset_groups * 6
    inputs = random(2, channels, 7, 8), random(2, 2 * taps, out_h, out_w) * 2
    mask = random(2, taps, out_h, out_w).sigmoid() if use_mask else torch.zeros(2, 1)

    def function(x, offset, mask):
        numbers = (stride, stride, pad, pad, dilation, dilation, groups, offset_groups)
        return ops.deform_conv2d(x, weight.to(x), offset, mask, bias.to(x), *numbers, use_mask)

    return function, (*inputs, mask)


DEFORMED = {
    "plain": {},
    "without-mask": {"use_mask": False},
    "groups": {"groups": 2, "offset_groups": 2},
    "offset-groups": {"offset_groups": 4, "stride": 2},
    "dilated": {"dilation": 2, "pad": 0},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "half"])
@pytest.mark.parametrize("name", DEFORMED)
def test_deformable_convolution_reads_where_its_offsets_say(name, dtype, version):
    """Between pixels and outside of the image too."""
    function, inputs = deformed(**DEFORMED[name])
    inputs = tuple(input_.to(dtype) for input_ in inputs)

    engine = compiled(function, inputs)

    tolerance = 1e-4 if dtype is torch.float32 else 3e-2
    torch.testing.assert_close(engine(*inputs), function(*inputs), rtol=tolerance, atol=tolerance)


def test_deformable_convolution_of_a_batch_that_varies(version):
    """With one engine."""
    function, inputs = deformed(groups=2)
    count = torch.export.Dim("count", min=1, max=4)
    engine = compiled(function, inputs, ({0: count}, {0: count}, {0: count}))

    for size in (1, 2):
        some = tuple(input_[:size].clone() for input_ in inputs)
        torch.testing.assert_close(engine(*some), function(*some), rtol=1e-4, atol=1e-4)
