"""The conformance class passes a pack that keeps the rules, and names what one does that breaks them all."""

import re

import pytest
import torch

from tests.support.processes import TESTING, run_python
from torchtrt.testing import PackConformance, op_case

GOOD = """
import torch
from torchtrt import trt
from torchtrt.conversion import add
from torchtrt.packs import ConverterPack, ConverterPriority, hookimpl

pack = ConverterPack("{name}", summary="for tests", torch=">=2.9", tensorrt=">=8.6")


@hookimpl
def torchtrt_converter_pack():
    return pack


@torch.library.custom_op("{name}::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def whole(node):
    dtype = node.args[0].meta["val"].dtype
    return None if dtype.is_floating_point else f"{{dtype}} is whole"


@hookimpl
def torchtrt_register_converters(pack):
    @pack.converter("{name}::twice", reject_if=whole, supports_dynamic_shapes=True)
    def convert(ctx, x):
        return add(ctx, "elementwise", x, x, trt.ElementWiseOperation.{operation})

{more}
"""

FAULTS = """
    import sys, warnings
    import colorsys, mypy
    print("hello")
    sys.path.append("/nowhere")
    warnings.simplefilter("ignore")
    torch.nn.functional.gelu = lambda x: x
    torch.loaded = getattr(torch, "loaded", 0) + 1

    def raises(node):
        return node.args[7]

    def mutates(node):
        node.meta["seen"] = torch.loaded
        return None

    def assumes(node):
        return "four" if node.meta["val"].shape[0] == 4 else None

    for op, check in (("relu.default", raises), ("sigmoid.default", mutates), ("tanh.default", assumes)):
        pack.add(f"aten.{op}", lambda ctx, self: self, reject_if=check)
    pack.add("aten.relu.default", lambda ctx, self: self, priority=ConverterPriority.HIGH)
    if torch.loaded == 1:
        pack.add("aten.cos.default", lambda ctx, self: self)
    pack.add("nosuch::op", lambda ctx, x: x)
    pack.add("faulty_late::op", lambda ctx, other: other)
    torch.library.define("faulty_late::op", "(Tensor x) -> Tensor")
    pack.decomposition("aten.sin.default")(lambda self: None)
"""

TEST = """
from torchtrt.testing import PackConformance, TensorSpec, op_case
import torch

class TestPack(PackConformance):
    pack = "{name}"
    cases = [
        op_case("{name}::twice", "batch length", dtypes=(torch.float32, torch.bfloat16)),
        op_case("{name}::twice", TensorSpec("3", torch.int64), rejected="int64 is whole", label="int"),
    ]
    op_info = ["nn.functional.relu"]
    op_info_dtypes = [torch.float32]
"""


@pytest.fixture
def tried(site, tmp_path):
    """Installs a pack and runs those of its tests that ``choice`` chooses: their outcomes, and what was printed.

    Each of them runs on one version of TensorRT, unless ``on`` is ``"all"``.
    """

    def run(
        name, operation="SUM", more="    pass", page="", test=TEST, choice="", on="one",
        requires="torchtrt-core>=0.1", **variables,
    ):  # fmt: skip
        site.unpack(site.wheel(name, GOOD.format(name=name, operation=operation, more=more)))
        metadata = next(site.path.glob(f"torchtrt_converters_{name}-*.dist-info")) / "METADATA"
        metadata.write_text(metadata.read_text() + f"Requires-Dist: {requires}\n")
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "pyproject.toml").touch()
        (folder / "README.md").write_text(page or f"`{name}::twice` is converted.")
        (folder / "test_pack.py").write_text(test.format(name=name))
        done = site.run(
            "-m", "pytest", "-rA", "-q", "--strict-markers", "-W", "error", "-p", "no:cacheprovider",
            "--rootdir", str(folder), str(folder / "test_pack.py"), "-k", choice, f"--tensorrt={on}",
            libraries=TESTING, **variables,
        )  # fmt: skip
        assert "INTERNALERROR" not in done.stdout, done.stdout
        tests = re.findall(r"^(PASSED|FAILED|ERROR) .*?::TestPack::(\w+)", done.stdout, re.M)
        return {
            outcome: {test for kind, test in tests if kind == outcome}
            for outcome in ("PASSED", "FAILED", "ERROR")
        }, done.stdout

    return run


def test_a_pack_that_keeps_the_rules_passes(tried):
    """On every version, with fixed and varying sizes, in both dtypes; without a GPU, and with warnings as errors."""
    outcomes, text = tried("good", on="all")

    assert not outcomes["FAILED"] | outcomes["ERROR"], text
    assert re.search(r"test_a_case_agrees_with_pytorch\[.*bfloat16-varying", text)
    assert "reference@8.6.0 has no torch.bfloat16" in text
    assert "test_custom_ops_are_registered_as_pytorch_wants" in outcomes["PASSED"]
    assert "test_pytorchs_samples_are_right" in outcomes["PASSED"]


LIBRARY = """
    library = torch.library.Library("{name}_more", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x * 3, "CompositeExplicitAutograd")
    globals()["kept"] = library
"""


def test_a_pack_that_defines_ops_with_a_library_can_be_loaded_twice(tried):
    """PyTorch takes no op twice, so the test gives up the first library."""
    more = LIBRARY.format(name="libraries")
    outcomes, text = tried("libraries", more=more, choice="loading or installed")

    assert "test_loading_it_twice_gives_the_same" in outcomes["PASSED"]
    assert not outcomes["FAILED"] | outcomes["ERROR"], text


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ("TorchTRT[tensorrt]", "an empty placeholder on the public index"),
        ("torch", "without torchtrt-core"),
    ],
)
def test_a_pack_must_require_the_core_and_never_the_placeholder(tried, requires, said):
    """Which pip would install beside the core, over its files."""
    outcomes, text = tried("needy", requires=requires, choice="requires_torchtrt")

    assert {"test_its_distribution_requires_torchtrt"} == outcomes["FAILED"], text
    assert said in text


RANGE = """
    @pack.converter("{name}_more::thrice", tensorrt=">=10", supports_dynamic_shapes=True)
    def thrice(ctx, x):
        kind = trt.ElementWiseOperation.SUM
        return add(ctx, "elementwise", add(ctx, "elementwise", x, x, kind), x, kind)
"""


def test_a_case_is_skipped_where_its_converter_is_not_for_that_tensorrt(tried):
    """With the range as the reason; elsewhere it is compared."""
    more = (LIBRARY + RANGE).format(name="ranged")
    case = 'op_case("{name}_more::thrice", "3"),\n        op_case("{name}::twice", TensorSpec'
    test = TEST.replace('op_case("{name}::twice", TensorSpec', case)
    outcomes, text = tried(
        "ranged",
        more=more,
        test=test,
        page="`ranged::twice`, `ranged_more::thrice`",
        choice="not loading",
        on="all",
    )

    assert not outcomes["FAILED"] | outcomes["ERROR"], text
    assert "works with TensorRT >=8.6,>=10, and 8.6.0 is in use" in text
    assert re.search(r"PASSED .*test_a_case_agrees_with_pytorch\[.*thrice.*11.4.0", text)


def test_a_pack_that_breaks_the_rules_is_told_each_of_them(tried):
    """What it did, in words, and not only that something is wrong."""
    outcomes, text = tried("faulty", "PROD", FAULTS, "Nothing.")

    expected = {
        "test_loading_it_is_light": "Loading faulty imports",
        "test_loading_it_changes_nothing_else": "sys.path was",
        "test_loading_it_twice_gives_the_same": "aten.cos.default",
        "test_every_op_exists": "There is no op 'nosuch.op.default'",
        "test_every_function_has_the_parameters_of_its_op": "the op has no argument 'other'",
        "test_validators_answer_and_change_nothing": "the validator changed the graph",
        "test_the_readme_lists_every_op": "does not name aten.cos.default",
        "test_every_op_has_a_case": "No case calls aten.cos.default",
        "test_a_case_agrees_with_pytorch": "Mismatched elements",
    }
    assert set(expected) <= outcomes["FAILED"], text
    assert {"test_it_is_installed_and_in_use", "test_it_says_who_it_is"} <= outcomes["PASSED"]
    for test, words in expected.items():
        assert words in text, test
    for words in (
        "torch.nn.functional.gelu was replaced",
        "warnings.filters was",
        "mypy",
        "IndexError",
        "This would assume",
    ):
        assert words in text, words


OVERRIDE = """
    @pack.converter("aten.hardtanh.default", priority=ConverterPriority.HIGH, supports_dynamic_shapes=True)
    def hardtanh(ctx, self, min_val, max_val):
        from torchtrt_blocks import elementwise

        return elementwise.clamp(ctx, self, {bounds}, ctx.dtype_of(self))
"""


@pytest.mark.parametrize(
    ("bounds", "outcome"), [("min_val, max_val", "PASSED"), ("-1, 1", "FAILED")]
)
def test_a_pack_that_overrides_an_op_is_tried_with_the_first_party_cases_of_it(
    tried, bounds, outcome
):
    """Without a line of its own for them; one that is wrong at other arguments fails."""
    more = OVERRIDE.format(bounds=bounds)
    page = "`high::twice` and `aten.hardtanh`"
    outcomes, text = tried("high", more=more, page=page, choice="not loading")

    assert "test_an_override_agrees_with_pytorch" in outcomes[outcome], text
    assert "aten.hardtanh.default" in text
    assert ("FAILED" == outcome) == bool(outcomes["FAILED"]), text


def test_a_pack_that_is_not_in_use_is_said_to_be_missing(tried):
    """And how to install it, or who disabled it."""
    test = "from torchtrt.testing import PackConformance\nclass TestPack(PackConformance):\n    pack = {name!r}"
    outcomes, text = tried("absent", test=test, TORCHTRT_PACKS_DISABLE="absent")

    assert {"test_it_is_installed_and_in_use"} == outcomes["FAILED"]
    assert not outcomes["PASSED"] | outcomes["ERROR"]
    assert "The pack 'absent' is not in use: disabled by TORCHTRT_PACKS_DISABLE." in text
    assert re.search(r"SKIPPED .*the pack 'absent' is not in use", text)


def test_a_pack_that_cannot_be_loaded_is_told_once(tried):
    """With what it raised, and where."""
    test = "from torchtrt.testing import PackConformance\nclass TestPack(PackConformance):\n    pack = {name!r}"
    outcomes, text = tried("broken", more="    import nothing_of_that_name", test=test)

    assert {"test_it_is_installed_and_in_use"} == outcomes["FAILED"], text
    assert not outcomes["PASSED"] | outcomes["ERROR"]
    assert re.search(
        r"Pack 'broken' .*No module named 'nothing_of_that_name' \(.*_pack\.py:\d+", text
    )


def test_a_case_of_an_op_that_a_broken_pack_would_register_says_so(tried):
    """The class cannot be made, and who looks for the reason need not look for it elsewhere."""
    _, text = tried("broken", operation="no Python")

    assert "There is no op" in text
    assert "Pack 'broken'" in text


WRONG = {
    "pass": "TestPack names no pack: write pack = 'vision' in it.",
    "pack, sizes = 'aten_core', ('varying',)": "write 'fixed sizes', 'varying sizes', or both.",
    "pack, op_info = 'aten_core', ('nn.functional.gelo',)": "Did you mean 'nn.functional.gelu'?",
}
"""Bodies of a class, and the words about each."""


def test_a_class_that_is_written_wrongly_says_how(tmp_path):
    """And does not pass, or test something else."""
    for number, body in enumerate(WRONG):
        (tmp_path / f"test_{number}.py").write_text(
            f"from torchtrt.testing import PackConformance\nclass TestPack(PackConformance):\n    {body}\n"
        )
    command = ["-m", "pytest", "-q", "--continue-on-collection-errors", "-k", "in_use or samples"]
    done = run_python(*command, str(tmp_path), cwd=tmp_path, libraries=TESTING)

    assert set(map(str, range(len(WRONG)))) == set(
        re.findall(r"^(?:FAILED|ERROR) test_(\d)", done.stdout, re.M)
    ), done.stdout
    for words in WRONG.values():
        assert words in done.stdout


SCRIPTED = """
    from torchtrt_torchscript import torchscript_converter

    @torchscript_converter(pack, "aten::tanh(Tensor self) -> Tensor", priority=ConverterPriority.HIGH)
    def tanh(ctx, node, args):
        layer = ctx.net.add_activation(args[0].ITensor(), trt.ActivationType.TANH)
        ctx.associate_value_and_tensor(node.output(), layer.get_output(0))
        return True
"""


def test_a_pack_with_a_torchscript_converter_passes(tried):
    """Cases are exported, so that it is not called for them; its pack declares where it is tested."""
    test = TEST + '    without_case = {{"aten.tanh": "TorchScript only"}}\n'
    page = "`{name}::twice`, and `aten.tanh` of TorchScript".format(name="scripted")
    outcomes, text = tried("scripted", more=SCRIPTED, test=test, page=page, choice="not loading")

    assert not outcomes["FAILED"] | outcomes["ERROR"], text


def test_a_case_that_an_older_pytorch_does_not_export_is_skipped():
    """It says nothing about the pack. On the PyTorch that exports every case, it is a fault of the case."""
    case = op_case((), "3", function=lambda x: x if bool(x.sum() > 0) else -x)
    tests = PackConformance()

    tests.exported_since = "99.0"
    with pytest.raises(pytest.skip.Exception, match=r"does not export it: .*GuardOnDataDependent"):
        tests._exported(case, varying=False)
    tests.exported_since = str(torch.__version__).partition("+")[0]
    with pytest.raises(RuntimeError):
        tests._exported(case, varying=False)
