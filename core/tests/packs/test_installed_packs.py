"""Real distributions, installed by pip into a folder and seen by a fresh Python: good, broken and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ONLY_TORCH

REPORT = """
import gc, json, sys, warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torchtrt

    at_import = [name for name in sys.modules if name.startswith("torchtrt_converters_")]
    torchtrt.packs.load_packs()

names = "rich sympy tensorrt torchtrt_compiler torchtrt_runtime torchtrt_reference torchtrt.registry"
heavy = set(names.split()) & set(sys.modules)

import torch
from torchtrt import packs
from torchtrt.registry import DYNAMO_CONVERTERS

graph = torch.fx.Graph()
x = graph.placeholder("x")


def chosen(op):
    resolution = DYNAMO_CONVERTERS.resolve(graph.call_function(op, (x,)))
    return resolution.chosen and [
        resolution.chosen.pack.name, resolution.chosen.pack.version, resolution.chosen.qualified_function
    ]


json.dump({
    "found": [info.name for info in packs.current_packs().installed],
    "loaded": [loaded.info.name for loaded in packs.loaded_packs()],
    "disabled": dict(packs.current_packs().disabled),
    "problems": [[p.pack, p.code, p.distribution, p.version, p.location, p.what, p.hint] for p in packs.problems()],
    "warnings": [[w.category.__name__, str(w.message)] for w in caught],
    "at_import": at_import,
    "lines": sorted({(w.filename, w.lineno) for w in caught if w.category.__name__ == "PackWarning"}),
    "heavy": sorted(heavy),
    "collecting": gc.isenabled(),
    "gelu": chosen(torch.ops.aten.gelu.default),
    "relu": chosen(torch.ops.aten.relu.default),
    "erfinv": chosen(torch.ops.aten.erfinv.default),
    "sigmoid": chosen(torch.ops.aten.sigmoid.default),
    "tanh": chosen(torch.ops.aten.tanh.default),
    "explain": DYNAMO_CONVERTERS.resolve(graph.call_function(torch.ops.aten.tanh.default, (x,))).explain(),
    "missing": sorted(DYNAMO_CONVERTERS.missing_targets()),
    "modules": sorted(name for name in sys.modules if name.startswith("torchtrt_converters_")),
    "display": DYNAMO_CONVERTERS.display_all_available_converters(),
}, sys.stdout)
"""

STAND_INS = "aten_core,vision,novel,broken,future,exits,junk,empty,half,misspelt,generator,old,liar"


@dataclass(frozen=True)
class Installed:
    """The site with every kind of pack, and a way to ask a fresh Python about it."""

    site: Any

    def report(self, **variables: str) -> dict[str, Any]:
        """Returns what a fresh Python sees, with only the stand-ins allowed unless ``variables`` names others."""
        variables = {"TORCHTRT_PACKS": STAND_INS, **variables}
        done = self.site.run("-c", REPORT, libraries=ONLY_TORCH, **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def installed(session_site: Any, source_of_pack: Callable[..., str]) -> Installed:
    """A site with every kind of pack, installed by pip."""
    site, source = session_site, source_of_pack
    wheels = [
        site.wheel(
            "aten_core",
            source("aten_core", "pack.add('aten.gelu', convert)\npack.add('aten.relu', convert)"),
            version="0.1.0",
        ),
        site.wheel(
            "vision",
            source("vision", "pack.add('aten.gelu', convert, priority=ConverterPriority.HIGH)"),
            version="0.3.0",
        ),
        site.wheel(
            "novel",
            source(
                "novel",
                "pack.add('aten.erfinv', convert)\npack.add('novel::fold', convert)",
            ),
        ),
        site.wheel("broken", "raise ImportError('libfoo.so.2: cannot open shared object file')"),
        site.wheel(
            "future",
            source("future", "from . import converters", ", api=(2, 0)"),
            modules={"converters": "raise SystemError('must not be imported')"},
        ),
        site.wheel("corrupt", source("corrupt")),
        site.wheel("asleep", source("asleep", "pack.add('aten.relu', convert)")),
        site.wheel("exits", "raise SystemExit(3)"),
        site.wheel("junk", source("junk").replace("return pack", "return 42")),
        site.wheel("empty", ""),
        site.wheel(
            "half",
            source("half", "pack.add('aten.sigmoid', convert)\nraise RuntimeError('half way')"),
        ),
        site.wheel(
            "misspelt",
            source("misspelt", "pack.add('aten.tanh', convert)").replace(
                "register_converters", "register_convertors"
            ),
        ),
        site.wheel("generator", source("generator", "yield pack.add('aten.tanh', convert)")),
        site.wheel("old", source("old", arguments=", torch='<2'")),
        site.wheel("liar", source("aten_core", "pack.add('aten.tanh', convert)")),
        site.wheel(
            "impostor",
            source("vision", "pack.add('aten.relu', convert)"),
            entry_points="[torchtrt.converters]\nvision = torchtrt_converters_impostor._pack\n",
        ),
    ]
    site.pip_install(*wheels)
    (metadata,) = site.path.glob("torchtrt_converters_corrupt-*.dist-info")
    # Not entry_points.txt: with that one undecodable, PyTorch's own import fails.
    (metadata / "METADATA").write_bytes(b"\xff\xfe")
    return Installed(site)


@pytest.fixture(scope="session")
def report(installed: Installed) -> dict[str, Any]:
    """What a fresh Python sees of the site."""
    return installed.report()


def problem_of(report: dict[str, Any], pack: str) -> tuple[str, str, str]:
    """Returns the code, text and hint of the one problem of a pack."""
    (problem_,) = [problem for problem in report["problems"] if problem[0] == pack]
    return problem_[1], problem_[5], problem_[6]


def test_a_third_party_overrides_a_first_party_converter_with_high(report: dict[str, Any]) -> None:
    """The reason why packs exist: HIGH crosses packs."""
    assert report["gelu"][:2] == ["vision", "0.3.0"]


def test_a_pack_leaves_the_ops_that_it_does_not_name_alone(report: dict[str, Any]) -> None:
    """Installing vision changed gelu and nothing else."""
    assert report["relu"][:2] == ["aten_core", "0.1.0"]


def test_a_pack_adds_an_op_that_nobody_had(report: dict[str, Any]) -> None:
    """A new op needs nothing but the installed pack."""
    assert report["erfinv"][:2] == ["novel", "1.0"]


def test_importing_torchtrt_imports_no_pack(report: dict[str, Any]) -> None:
    """So a module of a pack may be what imports torchtrt first."""
    assert report["at_import"] == []


def test_loading_packs_imports_nothing_that_only_compiling_needs(report: dict[str, Any]) -> None:
    """Finding packs is cheap; the rest waits for its first use."""
    assert report["heavy"] == []


def test_loading_packs_leaves_the_garbage_collector_on(report: dict[str, Any]) -> None:
    """It pauses only while packs are loaded."""
    assert report["collecting"] is True


def test_an_op_that_this_pytorch_lacks_is_noted_and_no_error(report: dict[str, Any]) -> None:
    """One pack can serve several versions of PyTorch."""
    assert report["missing"] == ["novel.fold.default"]
    assert "novel" in report["loaded"]


def test_packs_are_in_pack_order_and_local_is_the_last(report: dict[str, Any]) -> None:
    """First-party packs by tier, then third parties by name, then the program's own."""
    assert report["loaded"] == ["aten_core", "novel", "vision", "local"]


@pytest.mark.parametrize(
    ("pack", "code", "what", "hint"),
    [
        (
            "broken",
            "import-failed",
            "ImportError: libfoo.so.2: cannot open",
            "TORCHTRT_PACKS_DISABLE=broken",
        ),
        ("exits", "import-failed", "SystemExit: 3", "TORCHTRT_PACKS_DISABLE=exits"),
        (
            "future",
            "contract-version",
            "written for converter contract 2.0, and this torchtrt has 1.0",
            "Update",
        ),
        (
            "junk",
            "bad-hook",
            "torchtrt_converter_pack returned a value of type int",
            "Return one",
        ),
        ("empty", "bad-hook", "no torchtrt_converter_pack hook", "Name a pack in the entry"),
        (
            "half",
            "hook-failed",
            "torchtrt_register_converters raised RuntimeError: half way",
            "DISABLE=half",
        ),
        (
            "misspelt",
            "bad-hook",
            "unknown hook, 'torchtrt_register_convertors'",
            "'torchtrt_register_converters'?",
        ),
        (
            "generator",
            "bad-hook",
            "torchtrt_register_converters returned a value of type generator",
            "pack.add",
        ),
        ("old", "torch-version", "works with PyTorch <2", "torchtrt-converters-old"),
        ("liar", "bad-name", "calls itself 'aten_core'", "ConverterPack('liar'"),
        (
            "vision",
            "bad-name",
            "comes from torchtrt-converters-vision, not from",
            "Name the entry point 'impostor'",
        ),
    ],
)
def test_an_unusable_pack_is_a_problem_that_says_what_and_what_to_do(
    report: dict[str, Any], pack: str, code: str, what: str, hint: str
) -> None:
    """Each kind of failure has its code, its reason and its remedy."""
    found_code, found_what, found_hint = problem_of(report, pack)

    assert found_code == code
    assert what in found_what
    assert hint in found_hint


def test_corrupt_metadata_hides_one_pack_and_no_other(
    report: dict[str, Any], installed: Installed
) -> None:
    """The scan reads each distribution by itself."""
    (problem,) = [problem for problem in report["problems"] if problem[1] == "bad-metadata"]

    assert problem[2] == "torchtrt_converters_corrupt-1.0.dist-info"
    assert "UnicodeDecodeError" in problem[5]
    assert Path(problem[4]) == installed.site.path


def test_every_problem_is_one_warning(report: dict[str, Any]) -> None:
    """Never silent, never twice, never fatal."""
    shown = [text for category, text in report["warnings"] if category == "PackWarning"]

    assert len(shown) == len(report["problems"]) > 0
    for _, _, _, _, _, what, _ in report["problems"]:
        assert sum(what in text for text in shown) == 1


def test_a_problem_names_distribution_version_and_folder(
    report: dict[str, Any], installed: Installed
) -> None:
    """Its readers can find the files."""
    (problem,) = [problem for problem in report["problems"] if problem[0] == "broken"]

    assert problem[2:4] == ["torchtrt-converters-broken", "1.0"]
    assert Path(problem[4]) == installed.site.path


def test_a_warning_points_at_the_line_that_first_asked_for_packs(report: dict[str, Any]) -> None:
    """And not at a line of torchtrt."""
    line = 1 + REPORT.splitlines().index("    torchtrt.packs.load_packs()")
    assert report["lines"] == [["<string>", line]]


def test_a_pack_registers_all_or_nothing(report: dict[str, Any]) -> None:
    """What a pack registered before it failed is not kept."""
    assert report["sigmoid"] is None


def test_the_contract_is_checked_before_more_is_imported(report: dict[str, Any]) -> None:
    """The name of a pack for a newer contract is read, and nothing more."""
    assert "torchtrt_converters_future._pack" in report["modules"]
    assert "torchtrt_converters_future.converters" not in report["modules"]


def test_a_missing_converter_names_the_packs_that_could_not_load(report: dict[str, Any]) -> None:
    """The reason for an op without converter may be a pack that is not there."""
    assert report["tanh"] is None
    assert "No pack has a converter for aten.tanh.default" in report["explain"]
    assert "broken" in report["explain"]
    assert "not loaded: ImportError: libfoo.so.2" in report["explain"]


def test_a_pack_that_is_not_allowed_is_not_imported(report: dict[str, Any]) -> None:
    """With an allow-list, the modules of the others are not in sys.modules."""
    assert report["disabled"]["asleep"] == "not listed in TORCHTRT_PACKS"
    assert not [name for name in report["modules"] if name.startswith("torchtrt_converters_asleep")]


def test_a_disabled_pack_is_not_imported(installed: Installed) -> None:
    """TORCHTRT_PACKS_DISABLE takes a distribution's name too, and outranks the allow-list."""
    report = installed.report(
        TORCHTRT_PACKS="aten_core,vision", TORCHTRT_PACKS_DISABLE="Torchtrt-Converters-Vision"
    )

    assert report["disabled"]["vision"] == "disabled by TORCHTRT_PACKS_DISABLE"
    assert not [name for name in report["modules"] if name.startswith("torchtrt_converters_vision")]
    assert report["gelu"][0] == "aten_core"


def test_an_empty_allow_list_imports_no_pack(installed: Installed) -> None:
    """TORCHTRT_PACKS set to nothing is the way to start without any pack."""
    report = installed.report(TORCHTRT_PACKS="")

    assert report["loaded"] == ["local"]
    assert report["modules"] == []


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_hash_seed_changes_nothing(
    installed: Installed, report: dict[str, Any], seed: str
) -> None:
    """Order never comes from a set or a dictionary of hashes."""
    assert installed.report(PYTHONHASHSEED=seed) == report


def test_a_preferred_pack_comes_first_and_an_unknown_name_warns(installed: Installed) -> None:
    """TORCHTRT_PACKS_PREFER outranks HIGH; a name that matches nothing is a problem with the closest one."""
    report = installed.report(
        TORCHTRT_PACKS="aten_core,vision", TORCHTRT_PACKS_PREFER="aten_core visoin"
    )

    assert report["gelu"][0] == "aten_core"
    (problem,) = [problem for problem in report["problems"] if problem[1] == "unknown-name"]
    assert "TORCHTRT_PACKS_PREFER names 'visoin'" in problem[5]
    assert "'vision'" in problem[6]


def test_strict_makes_the_first_problem_an_error(installed: Installed) -> None:
    """TORCHTRT_PACKS_STRICT=1 is for continuous integration: every first use fails, with the cause."""
    program = (
        "import torchtrt\n"
        "try:\n    torchtrt.DYNAMO_CONVERTERS.unique_targets()\n"
        "except torchtrt.errors.PackError as error:\n    print(error)\n"
        "torchtrt.packs.loaded_packs()"
    )
    done = installed.site.run(
        "-c", program, TORCHTRT_PACKS_STRICT="1", TORCHTRT_PACKS="aten_core,broken"
    )

    assert done.returncode == 1
    assert f"torchtrt.errors.PackError: {done.stdout.strip()}" in done.stderr
