"""Loading: one pack at a time, each all or nothing. Every pack here is a real module on ``sys.path``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import importlib_metadata
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchtrt import packs
from torchtrt.errors import PackError
from torchtrt.packs import ConverterPack, PackInfo, PackSet, Problem, hookimpl
from torchtrt.packs.environment import Selection, read_selection
from torchtrt.packs.load import load
from torchtrt.packs.scan import InstalledExtension, Scan, scan

Loaded = tuple[PackSet, list[Problem]]


@pytest.fixture
def load_pack(site: Any) -> Callable[..., Loaded]:
    """Installs a pack named ``probe`` from its source, and loads what is in the site."""

    def install_and_load(source: str, strict: bool = False, **modules: str) -> Loaded:
        site.unpack(site.wheel("probe", source, modules=modules))
        scanned = scan(importlib_metadata.distributions(path=[str(site.path)]))
        return load(scanned, Selection(strict=strict), ConverterPack("local"))

    return install_and_load


def names(loaded: Loaded) -> list[str]:
    """Returns the names of the packs in use."""
    return [entry.info.name for entry in loaded[0].loaded]


def only_problem(loaded: Loaded) -> Problem:
    """Returns the one problem, once it is sure that the pack is not in use."""
    assert names(loaded) == ["local"]
    (problem,) = loaded[1]
    return problem


def test_a_good_pack_is_loaded_sealed_and_has_its_provenance(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """What is in use cannot change any more."""
    result, problems = load_pack(source_of_pack("probe", "pack.add('aten.relu', convert)"))

    assert problems == []
    probe, _ = result.loaded
    assert (probe.info.distribution, probe.info.version) == ("torchtrt-converters-probe", "1.0")
    assert len(probe.pack.converters) == 1
    with pytest.raises(PackError):
        probe.pack.add("aten.gelu", lambda ctx, self: self)


def test_a_pack_may_be_filled_without_the_second_hook(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """A pack that registers in its own module needs one hook only."""
    source = source_of_pack("probe").split("@hookimpl\ndef torchtrt_register")[0]

    result, problems = load_pack(source + "\npack.add('aten.relu', lambda ctx, self: self)")

    assert problems == []
    assert len(result.loaded[0].pack.converters) == 1


@pytest.fixture
def load_object(site: Any, source_of_pack: Callable[..., str]) -> Callable[..., Loaded]:
    """Installs a pack named ``probe`` whose entry point names an object, and loads it."""

    def install_and_load(
        entry: str = "pack", more: str = "", *, arguments: str = "", **modules: str
    ) -> Loaded:
        source = source_of_pack("probe", arguments=arguments).split("@hookimpl", maxsplit=1)[0]
        entry_points = f"[torchtrt.converters]\nprobe = torchtrt_converters_probe._pack:{entry}\n"
        site.unpack(site.wheel("probe", source + more, modules=modules, entry_points=entry_points))
        scanned = scan(importlib_metadata.distributions(path=[str(site.path)]))
        return load(scanned, Selection(), ConverterPack("local"))

    return install_and_load


PASS = """
from torchtrt_converters_probe._pack import pack

@pack.lowering_pass("{0}")
def rewrite(graph_module, settings): ...
"""


@pytest.mark.parametrize("first", ["", "a", "b", "c"])
def test_the_modules_of_a_named_pack_fill_it_in_their_order(
    load_object: Callable[..., Loaded], first: str
) -> None:
    """Whichever was imported first, by a test or by another module of the pack."""
    more = 'pack.lowering_pass("own")(print)\n'
    modules = {name: PASS.format(name) for name in "abc"}
    if first:
        more += f"import torchtrt_converters_probe.{first}\n"

    result, problems = load_object("pack", more, arguments=", modules=('c', 'a', 'b')", **modules)

    assert problems == []
    assert [pass_.name for pass_ in result.loaded[0].pack.lowering_passes] == ["own", "c", "a", "b"]


def test_a_named_pack_may_have_hooks(load_object: Callable[..., Loaded]) -> None:
    """The check of `torchtrt doctor`, and more to register, after its modules."""
    more = """
@hookimpl
def torchtrt_register_converters(pack):
    pack.lowering_pass("hook")(print)

@hookimpl
def torchtrt_check(): ...
"""
    result, problems = load_object("pack", more, arguments=", modules=('a',)", a=PASS.format("a"))

    assert problems == []
    loaded = result.loaded[0]
    assert loaded.check is not None
    assert {pass_.name for pass_ in loaded.pack.lowering_passes} == {"a", "hook"}


@pytest.mark.parametrize(
    ("entry", "more", "code", "what", "hint"),
    [
        (
            "packs", "", "bad-entry",
            'The entry point probe = "torchtrt_converters_probe._pack:packs" names an object that '
            "torchtrt_converters_probe._pack does not have",
            "Write packs = ConverterPack('probe', ...) in torchtrt_converters_probe._pack, or name",
        ),
        ("pack", "pack = 3", "bad-entry", "names a value of type int", "Write pack = Conv"),
        (
            "pack", "@hookimpl\ndef torchtrt_converter_pack(): return pack", "bad-hook",
            "nothing calls the hook torchtrt_converter_pack", "Delete the hook",
        ),
        ("pack", "pack.modules = ('no',)", "import-failed", "no module torchtrt_converters_probe.no", "Name modules"),
        ("pack", "pack.modules = ('no.a',)", "import-failed", "no module torchtrt_converters_probe.no", "Name modules"),
        ("pack", "pack = ConverterPack('other')", "bad-name", "calls itself 'other'", "ConverterPack('probe'"),
    ],
    ids=["missing", "no-pack", "superfluous-hook", "no-module", "no-module-outside", "other-name"],
)  # fmt: skip
def test_an_entry_point_that_does_not_lead_to_the_pack_says_what_to_do(
    load_object: Callable[..., Loaded], entry: str, more: str, code: str, what: str, hint: str
) -> None:
    """The problem names the distribution and contains its entry point."""
    problem = only_problem(load_object(entry, more))

    assert problem.code == code
    assert what in problem.what
    assert hint in problem.hint
    assert "torchtrt-converters-probe 1.0" in str(problem)


@pytest.mark.parametrize(
    ("name", "entry_points", "metadata"),
    [
        ("probe", "[torchtrt.converters]\nprobe = os.path:pack\n", None),
        ("probe", "[torchtrt.converters]\nother = torchtrt_converters_probe._pack\n", None),
        ("torchtrt-converters-probe", "[other]\nx = y\n", None),
        ("Probe", None, b"\xff\xfe"),
    ],
    ids=["foreign-module", "other-name", "no-entry-point", "unreadable"],
)
def test_a_pack_whose_metadata_is_wrong_can_be_disabled(
    site: Any, name: str, entry_points: str | None, metadata: bytes | None
) -> None:
    """Nothing is left to warn of, so that a strict process starts."""
    site.unpack(site.wheel("probe", "", entry_points=entry_points))
    if metadata is not None:
        (folder,) = site.path.glob("*.dist-info")
        (folder / "METADATA").write_bytes(metadata)
    scanned = scan(importlib_metadata.distributions(path=[str(site.path)]))
    selection = read_selection({"TORCHTRT_PACKS_DISABLE": name, "TORCHTRT_PACKS_STRICT": "1"})

    assert len(scanned.problems) == 1
    assert load(scanned, selection, ConverterPack("local"))[1] == []
    with pytest.raises(PackError):
        load(scanned, Selection(strict=True), ConverterPack("local"))


def test_the_modules_of_a_pack_are_several_names() -> None:
    """A text would be taken for its letters."""
    for modules in ("converters", ("a b",), (1,)):
        with pytest.raises(PackError, match="Name modules of its package"):
            ConverterPack("probe", modules=modules)  # type: ignore[arg-type]


def test_a_hook_takes_the_arguments_that_it_names(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """The register hook may leave the pack out and use its module's own."""
    source = source_of_pack("probe").replace("converters(pack)", "converters()")

    assert names(load_pack(source)) == ["probe", "local"]


def test_a_hook_that_asks_for_an_unknown_argument_needs_a_newer_torchtrt(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """Parameters are how hooks grow."""
    problem = only_problem(load_pack(source_of_pack("probe").replace("(pack):", "(pack, gpu):")))

    assert problem.code == "bad-hook"
    assert "gpu" in problem.what
    assert "newer torchtrt" in problem.hint


def test_a_hook_wrapper_is_refused(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """No hook lets one pack see or change another."""
    source = source_of_pack("probe", "yield").replace(
        "@hookimpl\ndef torchtrt_register", "@hookimpl(wrapper=True)\ndef torchtrt_register"
    )

    problem = only_problem(load_pack(source))

    assert problem.code == "bad-hook"
    assert "wrapper" in problem.what


def test_a_function_that_is_named_like_a_hook_and_not_marked_is_refused(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """Nothing would call it, and its author would wonder why."""
    source = source_of_pack("probe").replace("@hookimpl\ndef torchtrt_reg", "def torchtrt_reg")

    problem = only_problem(load_pack(source))

    assert "bad-hook" == problem.code
    assert "'torchtrt_register_converters' is not marked" in problem.what
    assert "@hookimpl" in problem.hint


def test_a_pack_cannot_register_in_another(site: Any, source_of_pack: Callable[..., str]) -> None:
    """The one that tries is not used; the other is, with nothing but its own."""
    intruder = "import torchtrt_converters_zz._pack as other\nother.pack.add('aten.relu', convert)"
    zz = source_of_pack("zz", "pack.add('aten.gelu', convert)")
    pack_of_zz = "from torchtrt.packs import ConverterPack\npack = ConverterPack('zz')"
    zz = zz.replace("pack = ConverterPack('zz')", "from torchtrt_converters_zz.made import pack")
    site.unpack(site.wheel("aa", source_of_pack("aa", intruder)))
    site.unpack(site.wheel("zz", zz, modules={"made": pack_of_zz}))
    scanned = scan(importlib_metadata.distributions(path=[str(site.path)]))

    result, (problem,) = load(scanned, Selection(), ConverterPack("local"))

    assert ("aa", "hook-failed") == (problem.pack, problem.code)
    assert "Pack 'aa' registers something in pack 'zz'" in problem.what
    (entry, _) = result.loaded
    assert ["aten.gelu.default"] == [str(converter.target) for converter in entry.pack.converters]


@pytest.mark.parametrize("argument", ["torch", "tensorrt"])
def test_a_malformed_range_is_found_at_loading(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str], argument: str
) -> None:
    """Not when a node is first looked up."""
    problem = only_problem(
        load_pack(source_of_pack("probe", arguments=f", {argument}='8.6 or so'"))
    )

    assert problem.code == "bad-range"
    assert "'8.6 or so'" in problem.what


def test_an_older_minor_contract_is_fine_and_a_newer_one_is_not(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """Minors only add."""
    major, minor = packs.API_VERSION

    problem = only_problem(
        load_pack(source_of_pack("probe", arguments=f", api=({major}, {minor + 1})"))
    )

    assert problem.code == "contract-version"
    assert "Update torchtrt" in problem.hint


def test_an_older_major_contract_asks_for_a_newer_pack(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """The remedy depends on which side is behind."""
    problem = only_problem(load_pack(source_of_pack("probe", arguments=", api=(0, 9)")))

    assert problem.hint == "Install a newer torchtrt-converters-probe."


@pytest.mark.parametrize(
    "statement",
    [
        "import no_such_module",
        "1 / 0",
        "def f(:",
        "def f(): f()\nf()",
        "raise MemoryError",
        "raise GeneratorExit",
        "class Odd(BaseException): ...\nraise Odd",
        "class Fatal(Exception):\n    def __str__(self): raise SystemExit\nraise Fatal",
        "class Mute(Exception):\n    def __str__(self): raise self\nraise Mute",
        "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('odd', DeprecationWarning)",
    ],
    ids=[
        "missing",
        "bug",
        "syntax",
        "recursion",
        "memory",
        "generator-exit",
        "base",
        "fatal",
        "mute",
        "warning",
    ],
)
def test_nothing_that_an_import_raises_gets_out(
    load_pack: Callable[..., Loaded], statement: str
) -> None:
    """It becomes a problem with a traceback that ends in the pack's own line."""
    problem = only_problem(load_pack(statement))

    assert problem.code == "import-failed"
    assert problem.traceback is not None
    assert "torchtrt_converters_probe" in problem.traceback


@pytest.mark.parametrize(
    "change", ["api = 1", "api = None", "torch = 3", "tensorrt = 'x'", "name = 7"]
)
def test_a_pack_that_changes_after_it_was_made_is_checked_as_it_is(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str], change: str
) -> None:
    """Whatever its attributes have become, it is a problem and not a crash."""
    source = source_of_pack("probe").replace("@hookimpl", f"pack.{change}\n\n\n@hookimpl", 1)

    assert only_problem(load_pack(source)).code in {"import-failed", "bad-range", "bad-name"}


def test_a_pack_cannot_take_another_name_while_it_is_filled(
    load_pack: Callable[..., Loaded], source_of_pack: Callable[..., str]
) -> None:
    """Its provenance and its own package are those of the metadata."""
    body = "pack.name = 'aten_core'"

    problem = only_problem(load_pack(source_of_pack("probe", body)))

    assert (problem.pack, problem.code) == ("probe", "hook-failed")


def test_an_interrupt_is_the_persons_and_gets_out(load_pack: Callable[..., Loaded]) -> None:
    """Ctrl-C during a slow import must still work."""
    with pytest.raises(KeyboardInterrupt):
        load_pack("raise KeyboardInterrupt")


def test_strict_raises_with_the_cause(load_pack: Callable[..., Loaded]) -> None:
    """The pack's own exception is the cause, with its traceback."""
    with pytest.raises(PackError, match=r"Pack 'probe'.*ZeroDivisionError") as caught:
        load_pack("1 / 0", strict=True)

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(
    junk=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_value_that_a_hook_returns_gets_through(
    monkeypatch: pytest.MonkeyPatch, junk: Any
) -> None:
    """Anything but a ConverterPack is a problem."""
    module = ModuleType("torchtrt_converters_fuzzed")

    @hookimpl
    def torchtrt_converter_pack() -> Any:
        return junk

    module.torchtrt_converter_pack = torchtrt_converter_pack  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    scanned = Scan(
        (InstalledExtension(PackInfo("fuzzed", "torchtrt-converters-fuzzed"), module.__name__),), ()
    )

    problem = only_problem(load(scanned, Selection(), ConverterPack("local")))

    assert problem.code == "bad-hook"


def test_packs_are_loaded_once_more_after_one_of_them_broke_off_the_loading(
    site: Any, source_of_pack: Callable[..., str]
) -> None:
    """Each use in a strict process raises the same error, and not that the good packs are loaded already."""
    site.unpack(site.wheel("probe", source_of_pack("probe", "pack.add('aten.relu', convert)")))
    site.unpack(site.wheel("unsound", "1 / 0"))
    scanned = scan(importlib_metadata.distributions(path=[str(site.path)]))

    for _ in range(2):
        with pytest.raises(PackError, match=r"'unsound'.*ZeroDivisionError"):
            load(scanned, Selection(strict=True), ConverterPack("local"))


def test_loading_twice_is_loading_once() -> None:
    """The process has one set of packs."""
    assert packs.load_packs() is packs.load_packs()
