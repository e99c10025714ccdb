"""How many of Torch-TensorRT's own converters are right when adopted: the counts of docs/from-torch-tensorrt.md.

From the root of a checkout, once ``make compare`` has brought Torch-TensorRT::

    TORCHTRT_TENSORRT=reference@11.4.0 PYTHONPATH=. python plugins/contrib/torch_tensorrt/tests/census.py

Each op's cases of the first-party packs are compiled with its adopted converter preferred, and all others as ever.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import torchtrt
from tests.benchmarks.peer import stand_in
from torchtrt.errors import ConversionError, TorchTRTError
from torchtrt.targets import parse_target, qualified_name
from torchtrt.testing import first_party_cases
from torchtrt_converters_torch_tensorrt import adopt_torch_tensorrt
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import assert_close, export, run_compiled
from torchtrt_testing.tensors import MAXIMUM, MINIMUM, USUAL

FOLDER = Path(".cache/torch-tensorrt")
RIGHT, DECLINED, NOT_BUILT, WRONG = "right", "declined", "not built", "wrong"
NOT_ASKED = "never asked, since lowering replaces it"


@dataclass(frozen=True)
class Outcome:
    """What became of one case of an op.

    Attributes:
        kind: One of those above: declined by the validator, refused while the network was built, or compared.
        reason: Why it is not right.
    """

    kind: str
    reason: str = ""


def outcome(pack: str, target: Any, case: OpCase, varying: bool) -> Outcome:
    """Returns what becomes of a case when an op's adopted converter is preferred."""
    exported = export(case, varying)
    preferred = {target: pack}
    try:
        compiled = torchtrt.compile(exported, min_block_size=1, converter_preferences=preferred)
        if not any(row.pack.startswith(pack) for row in compiled.report.converted):
            answer = asked(pack, target, exported)
            if answer is not RIGHT:
                return Outcome(answer)
        model = case.model()
        for point in (MINIMUM, USUAL, MAXIMUM) if varying and case.varies else (USUAL,):
            inputs = case.inputs(point)
            assert_close(run_compiled(compiled, *inputs), model(*inputs), case.tolerance)
    except AssertionError as error:
        return Outcome(WRONG, " ".join(str(error).split())[:150])
    except ConversionError as error:
        return Outcome(NOT_BUILT, str(error).partition("): ")[2].partition("\n")[0][:200])
    except TorchTRTError as error:
        return Outcome(NOT_BUILT, " ".join(str(error).split())[:200])
    return Outcome(RIGHT)


def asked(pack: str, target: Any, exported: torch.export.ExportedProgram) -> str:
    """Returns the converter's reason for an op that no block lists: numbers are repeated in each that needs them."""
    settings = torchtrt.CompilationSettings(converter_preferences={target: pack})
    answer = NOT_ASKED
    for node in exported.graph.nodes:
        if node.op == "call_function" and node.target == target:
            chosen = torchtrt.DYNAMO_CONVERTERS.resolve(node, settings).chosen
            if chosen is None or chosen.pack.name != pack:
                answer = DECLINED
            elif not isinstance(node.meta["val"], torch.Tensor):
                return RIGHT
    return answer


def cases_of(targets: set[Any]) -> Iterator[tuple[Any, OpCase]]:
    """Yields each op that is adopted with each of its cases."""
    for several in first_party_cases():
        for case in several.each_dtype():
            called = {*map(parse_target, case.ops), case.function}
            for target in sorted(targets & called, key=str):
                yield target, case


def main() -> None:
    """Prints how many ops are right, and every case that is not."""
    pack = adopt_torch_tensorrt()
    targets = {converter.target for converter in pack.converters}
    kinds_of: dict[str, Counter[str]] = defaultdict(Counter)
    for target, case in cases_of(targets):
        for varying in (False, True):
            result = outcome(pack.name, target, case, varying)
            kinds_of[qualified_name(target)][result.kind] += 1
            if result.reason:
                sizes = "varying" if varying else "fixed"
                print(
                    f"{qualified_name(target)} | {case.label} | {sizes} | {result.kind} | {result.reason}"
                )
    kinds = Counter(kind(counts) for counts in kinds_of.values())
    kinds["without a case"] = len(targets) - len(kinds_of)
    print(f"{len(pack.converters)} converters for {len(targets)} ops: {dict(kinds)}")
    print(f"Cases: {dict(sum(kinds_of.values(), Counter()))}")
    for answer in (DECLINED, NOT_ASKED):
        print(
            f"Always {answer}:", *(op for op, counts in kinds_of.items() if set(counts) == {answer})
        )
    print("Without a case:", *sorted({*map(qualified_name, targets)} - set(kinds_of)))


def kind(counts: Counter[str]) -> str:
    """Returns what becomes of an op: the worst of its cases, and whether there is a right one."""
    worst = next(
        outcome for outcome in (WRONG, NOT_BUILT, RIGHT, DECLINED, NOT_ASKED) if counts[outcome]
    )
    return f"{worst} in some cases" if worst in (WRONG, NOT_BUILT) and counts[RIGHT] else worst


if __name__ == "__main__":
    stand_in(FOLDER.resolve())
    logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with torch.no_grad():
        main()
