"""``torchtrt lock``: who converts what, in a file to keep; ``torchtrt doctor --locked`` compares with it.

The file is JSON with an op on each line, so that a change is a line in a diff.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtrt.errors import TorchTRTError
from torchtrt_cli.output import answers, print_json
from torchtrt_cli.parser import LOCK

FORM = 1
"""The form of the file."""


@dataclass(frozen=True)
class Lock:
    """The converter of each op.

    Attributes:
        packs: For each pack in use its distribution and version.
        converters: For each op its converters in the order in which they are tried, as ``"pack module:function"``.
        decompositions: For each op its decompositions, likewise.
        passes: The passes over the graph in the order in which they run, as ``"pack name"``.
    """

    packs: Mapping[str, str] = field(default_factory=dict)
    converters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    decompositions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    passes: Sequence[str] = ()


def run(arguments: argparse.Namespace) -> int:
    """Writes the file; returns 1, and writes nothing, where a pack has a problem."""
    from torchtrt.packs.state import problems

    wrong = [str(problem) for problem in problems()]
    if wrong:
        for problem in wrong:
            print(f"problem: {problem}", file=sys.stderr)
        hint = "Mend this, or disable the pack, and call the command again."
        print(
            f"torchtrt: {LOCK} is not written: it would leave out what a pack should convert. {hint}",
            file=sys.stderr,
        )
        return 1
    current_lock = current()
    path = Path.cwd() / LOCK
    try:
        path.write_text(to_json(current_lock), encoding="utf-8", newline="\n")
    except OSError as error:
        raise TorchTRTError(f"{path} cannot be written: {error}.") from error
    counts = {
        "ops": len(current_lock.converters),
        "decompositions": len(current_lock.decompositions),
        "packs": len(current_lock.packs),
    }
    if arguments.json:
        print_json({"file": str(path), **counts})
    else:
        text = ", ".join(f"{count} {name}" for name, count in counts.items())
        print(f"{LOCK}: {text}. `torchtrt doctor --locked` compares with it.", file=answers())
    return 0


def current() -> Lock:
    """Returns who converts what in this process, but for what a program registers itself."""
    from torchtrt.packs.info import LOCAL
    from torchtrt.packs.state import loaded_packs
    from torchtrt.registry import DYNAMO_CONVERTERS, lowering_passes
    from torchtrt.targets import qualified_name

    def named(by_target: Mapping[Any, Sequence[Any]]) -> dict[str, list[str]]:
        by_name = {qualified_name(target): entries for target, entries in by_target.items()}
        return {
            name: [f"{entry.pack.name} {entry.qualified_function}" for entry in by_name[name]]
            for name in sorted(by_name)
        }

    packs = {pack.info.name: pack.info.origin for pack in loaded_packs() if pack.info.name != LOCAL}
    targets = DYNAMO_CONVERTERS.unique_targets()
    return Lock(
        {name: packs[name] for name in sorted(packs)},
        named({target: DYNAMO_CONVERTERS.candidates(target) for target in targets}),
        named(DYNAMO_CONVERTERS.decomposition_candidates()),
        [f"{pass_.pack.name} {pass_.name}" for pass_ in lowering_passes()],
    )


def to_json(lock: Lock) -> str:
    """Returns the text of a file: a pack, an op or a pass on each line."""

    def block(name: str, entries: Mapping[str, object]) -> str:
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()]
        return "\n".join((f'"{name}": {{', ",\n".join(lines), "}")) if lines else f'"{name}": {{}}'

    passes = ",\n".join(map(json.dumps, lock.passes))
    parts = (
        f'"lock": {FORM}',
        block("packs", lock.packs),
        block("converters", lock.converters),
        block("decompositions", lock.decompositions),
        f'"passes": [\n{passes}\n]' if passes else '"passes": []',
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(path: Path) -> Lock:
    """Returns the lock in a file.

    Raises:
        TorchTRTError: There is no such file, or it is not a lock.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        form = data["lock"]
        lock = Lock(data["packs"], data["converters"], data["decompositions"], data["passes"])
        lists = [lock.passes, *lock.converters.values(), *lock.decompositions.values()]
        names = [*lock.packs.values(), *(name for ids in lists for name in ids)]
        are_lists = all(isinstance(ids, list) for ids in lists)
        if not are_lists or not all(isinstance(name, str) for name in names):
            raise TypeError("its parts are of other kinds")
    except FileNotFoundError:
        raise TorchTRTError(f"There is no {path}. `torchtrt lock` writes it.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TorchTRTError(
            f"{path} is no lock: {type(error).__name__}: {error}. Take it from version control, or run `torchtrt lock`."
        ) from error
    if form != FORM:
        raise TorchTRTError(
            f"{path} is of form {form}, and this torchtrt reads form {FORM}. Run `torchtrt lock`."
        )
    return lock


def differences(locked: Lock, installed: Lock) -> Iterator[str]:
    """Yields how what is installed differs from a lock, each as a clause."""
    for name in sorted({*locked.packs, *installed.packs}):
        before, after = locked.packs.get(name), installed.packs.get(name)
        if before != after:
            yield f"the pack {name} was {before or 'not in use'} and is {after or 'not in use'}"
    for noun, old, new in (
        ("converted", locked.converters, installed.converters),
        ("decomposed", locked.decompositions, installed.decompositions),
    ):
        for op in sorted({*old, *new}):
            before_it, after_it = (list(by_op.get(op, ())) for by_op in (old, new))
            if before_it != after_it:
                was, now = (", then ".join(names) or "nothing" for names in (before_it, after_it))
                yield f"{op} was {noun} by {was} and is by {now}"
    if list(locked.passes) != list(installed.passes):
        was, now = (", ".join(passes) or "none" for passes in (locked.passes, installed.passes))
        yield f"the passes over the graph were {was} and are {now}"
