"""Packs that hang, recurse or are enormous: the others go on, and a person learns whose fault it is."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.processes import ONLY_TORCH

IN_TIME = 120.0
"""Seconds after which a process counts as hanging: a new one imports PyTorch in less, however busy the machine."""

HANGS = {
    "sleeps while it is imported": ("import time\ntime.sleep(3600)", ""),
    "spins while it is imported": ("while True:\n    pass", ""),
    "sleeps while it registers": ("", "import time\ntime.sleep(3600)"),
    "waits for a thread that waits for the packs": (
        "",
        "import threading\nfrom torchtrt.packs import load_packs\n"
        "waits = threading.Thread(target=load_packs, daemon=True)\nwaits.start()\nwaits.join()",
    ),
}

USES = """
import json, torch, torchtrt
from torchtrt import packs
from torchtrt.registry import DYNAMO_CONVERTERS

graph = torch.fx.Graph()
node = graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),))
print(json.dumps({
    "relu": DYNAMO_CONVERTERS.resolve(node).chosen.pack.name,
    "loaded": [loaded.info.name for loaded in packs.loaded_packs()],
    "problems": [[problem.pack, problem.code, problem.what] for problem in packs.problems()],
}))
"""


@pytest.fixture
def install(site: Any, source_of_pack: Callable[..., str]) -> Callable[..., None]:
    """Installs a pack, ``bad`` by default, beside the pack ``good``, which converts ``relu``."""
    good = source_of_pack("good", "pack.add('aten.relu', convert)")
    site.unpack(site.wheel("good", good))

    def put(above: str = "", body: str = "", name: str = "bad") -> None:
        source = source_of_pack(name, body or "pass")
        site.unpack(site.wheel(name, f"{above}\n{source}"))

    return put


def used(site: Any, *packs: str, **variables: str) -> dict[str, Any]:
    """Returns what a fresh Python finds that has ``good`` and some packs only."""
    variables = {"TORCHTRT_PACKS": ",".join(("good", *packs)), **variables}
    done = site.run("-c", USES, timeout=IN_TIME, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_disabled_pack_cannot_hang(site: Any, install: Callable[..., None]) -> None:
    """Nothing of it is imported, so nothing of it runs."""
    names = [f"hangs{number}" for number in range(len(HANGS))]
    for name, (above, body) in zip(names, HANGS.values(), strict=True):
        install(above, body, name)

    outcome = used(site, *names, TORCHTRT_PACKS_DISABLE=",".join(names))

    assert ("good", ["good", "local"], []) == (
        outcome["relu"],
        outcome["loaded"],
        outcome["problems"],
    )


@pytest.mark.parametrize("kind", HANGS)
def test_ctrl_c_ends_a_pack_that_hangs_and_shows_its_line(
    site: Any, install: Callable[..., None], kind: str
) -> None:
    """The traceback leads into the pack."""
    above, body = HANGS[kind]
    # A process in the background of a script is started to ignore Ctrl-C.
    say = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    say += "print('here', file=sys.stderr, flush=True)\n"
    install(say + above if above else "", say + body if body else "")
    program = "import torchtrt\ntorchtrt.packs.load_packs()"
    process = site.start("-c", program, TORCHTRT_PACKS="good,bad")
    assert process.stderr is not None
    try:
        while "here" not in (line := process.stderr.readline()):
            assert line, "it ended before the pack was loaded"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=IN_TIME)
    finally:
        process.kill()

    assert process.returncode
    assert "KeyboardInterrupt" in errors
    assert "torchtrt_converters_bad" in errors


RECURSIONS = {
    "compiles": "import torch, torchtrt\ntorchtrt.compile(torch.nn.ReLU().eval(), (torch.ones(2),))",
    "looks a node up": "import torch\nfrom torchtrt.registry import DYNAMO_CONVERTERS\n"
    "graph = torch.fx.Graph()\nx = graph.placeholder('x')\n"
    "DYNAMO_CONVERTERS.resolve(graph.call_function(torch.ops.aten.relu.default, (x,)))",
    "lists what is converted": "from torchtrt.registry import DYNAMO_CONVERTERS\n"
    "DYNAMO_CONVERTERS.unique_targets()",
    "asks for the packs": "from torchtrt.packs import loaded_packs\nloaded_packs()",
    "chooses a TensorRT": "import torchtrt\nwith torchtrt.use_tensorrt('reference'):\n    pass",
}


def test_a_pack_that_asks_what_there_is_while_it_is_loaded_is_told_that_it_is_too_early(
    site: Any, install: Callable[..., None]
) -> None:
    """In its module or in its hook: an answer would be wrong. The other packs are loaded, and whole."""
    expected = {}
    for number, source in enumerate(RECURSIONS.values()):
        install(source, "", f"module{number}")
        install("", source, f"hook{number}")
        expected |= {f"module{number}": "import-failed", f"hook{number}": "hook-failed"}

    outcome = used(site, *expected)

    assert ("good", ["good", "local"]) == (outcome["relu"], outcome["loaded"])
    assert expected == {pack: code for pack, code, _ in outcome["problems"]}
    for pack, _, what in outcome["problems"]:
        assert "while packs were being loaded" in what, pack


def test_a_pack_cannot_hide_behind_local_while_it_loads(
    site: Any, install: Callable[..., None]
) -> None:
    """Every converter has the provenance of its own distribution."""
    body = "from torchtrt.registry import dynamo_tensorrt_converter\n"
    body += "dynamo_tensorrt_converter('aten.erfinv.default')(convert)"
    install("", body)

    (problem,) = used(site, "bad")["problems"]

    assert ("bad", "hook-failed") == tuple(problem[:2])
    assert "Use @pack.converter" in problem[2]


@pytest.mark.parametrize(
    "body",
    [
        "from torchtrt.packs import load_packs\nload_packs()",
        "import importlib, torchtrt\nimportlib.reload(torchtrt)",
        "import torchtrt_converters_bad._pack as again\nassert again.pack is pack",
    ],
    ids=["loads the packs", "reloads torchtrt", "imports itself"],
)
def test_a_pack_that_begins_again_while_it_is_loaded_is_loaded_once(
    site: Any, install: Callable[..., None], body: str
) -> None:
    """The loading that is under way is the only one."""
    install("", f"{body}\npack.add('aten.relu', convert, priority=ConverterPriority.HIGH)")

    outcome = used(site, "bad")

    assert ("bad", ["bad", "good", "local"], []) == (
        outcome["relu"],
        outcome["loaded"],
        outcome["problems"],
    )


MEASURE = """
import gc, json, time, tracemalloc, torch

TRACED = bool({traced})
if TRACED:
    tracemalloc.start()
start = time.process_time()
import torchtrt
from torchtrt.registry import DYNAMO_CONVERTERS

graph = torch.fx.Graph()
node = graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),))
resolution = DYNAMO_CONVERTERS.resolve(node)
loading = time.process_time() - start
peak = tracemalloc.get_traced_memory()[1] if TRACED else 0
gc.disable()  # it goes through all that lives, whatever is looked up
start = time.process_time()
for _ in range(5000):
    DYNAMO_CONVERTERS.resolve(node)
print(json.dumps({{
    "loading": loading,
    "peak": peak,
    "lookup": time.process_time() - start,
    "relu": resolution.chosen.pack.name,
    "ops": len(DYNAMO_CONVERTERS.missing_targets()),
}}))
"""


@pytest.mark.parametrize(
    ("converter", "many"),
    [
        ("convert", 5_000),
        pytest.param("convert", 20_000, marks=pytest.mark.slow),
    ],
)
def test_a_pack_with_many_converters_costs_what_each_of_them_does(
    site: Any, install: Callable[..., None], converter: str, many: int
) -> None:
    """Time and memory grow with the number and no faster; a lookup does not grow at all."""
    counts = (0, many // 4, many)
    peaks: dict[tuple[str, int], float] = {}
    for count in counts:
        body = f"for number in range({count}):\n    pack.add(f'bad::op{{number}}', {converter})"
        install("", body)
        for traced in (0, 0, 1):
            program = MEASURE.format(traced=traced)
            done = site.run(
                "-c", program, timeout=IN_TIME, libraries=ONLY_TORCH, TORCHTRT_PACKS="good,bad"
            )
            assert done.returncode == 0, done.stderr
            answer = json.loads(done.stdout)
            assert ("good", count) == (answer["relu"], answer["ops"])
            for what in ("peak",) if traced else ("loading", "lookup"):
                peaks[what, count] = min(answer[what], peaks.get((what, count), math.inf))

    def growth(what: str) -> float:
        """Returns how many times as much a converter costs among four times as many."""
        none, few, all_of_them = (peaks[what, count] for count in counts)
        return (all_of_them - none) / (few - none) / 4

    assert 3 > growth("loading")
    assert 2 > growth("peak")
    assert many * 2000 > peaks["peak", many] - peaks["peak", 0], "2,000 bytes each are ample"
    assert 3 * peaks["lookup", 0] > peaks["lookup", many]
