"""The file ``coverage.json`` of a pack: what became of PyTorch's own samples of each op. See docs/publish-a-pack.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

FILE = "coverage.json"

CORRECT, REJECTED, WRONG, CRASHED, NOT_EXPORTABLE, NOTHING = KINDS = tuple(".rWCX-")
"""The possible outcomes of a sample. In the file a rejected one is the letter of its reason: ``a`` for the first."""
COUNTED = (CORRECT, REJECTED, WRONG, CRASHED)
"""The outcomes that count in a share. Samples that torch.export refuses, or that compute nothing, do not."""
NAMES = ("correct", "rejected", "wrong", "crashed", "not exportable", "nothing to do")
LABELS = dict(zip(KINDS, NAMES, strict=True))


@dataclass(frozen=True)
class OpCoverage:
    """The outcomes of one op's samples.

    Attributes:
        samples: For each dtype and each version in order, a letter for each sample.
        reasons: Why samples were rejected; the letter ``a`` stands for the first.
    """

    samples: Mapping[str, tuple[str, ...]]
    reasons: tuple[str, ...] = ()

    def letters(self, version: int | None = None) -> str:
        """Returns the letters of all samples, on one version (by its place) or on all."""
        chosen = slice(None) if version is None else slice(version, version + 1)
        return "".join("".join(letters[chosen]) for letters in self.samples.values())

    def reason_counts(self) -> list[tuple[str, int]]:
        """Returns the reasons and how many samples they rejected, the most frequent first."""
        counts = Counter(letter for letter in self.letters() if kind_of(letter) == REJECTED)
        return [(self.reasons[ord(letter) - ord("a")], n) for letter, n in counts.most_common()]


@dataclass(frozen=True)
class Coverage:
    """The coverage that one pack's file contains.

    Attributes:
        torch: The PyTorch whose samples these are.
        versions: The versions of TensorRT.
        ops: The ops, by the names of PyTorch's OpInfo database.
    """

    torch: str
    versions: tuple[str, ...]
    ops: Mapping[str, OpCoverage]

    @classmethod
    def from_json(cls, text: str) -> Coverage:
        """Returns the coverage in the text of a file.

        Raises:
            ValueError: The text is not of this form.
        """
        try:
            data = json.loads(text)
            ops = {}
            for name, entry in data["ops"].items():
                reasons = tuple(entry.pop("reasons", ()))
                ops[name] = OpCoverage(
                    {dtype: tuple(letters) for dtype, letters in entry.items()}, reasons
                )
            return cls(data["torch"], tuple(data["versions"]), ops)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no coverage: {type(error).__name__}: {error}") from error


def kind_of(letter: str) -> str:
    """Returns what a letter of a file stands for."""
    return REJECTED if letter.islower() else letter


def count(letters: str) -> dict[str, int]:
    """Returns how many samples there are of each kind, by label."""
    counts = Counter(map(kind_of, letters))
    return {label: counts[kind] for kind, label in LABELS.items()}


def share(letters: str) -> str:
    """Returns which share of the samples that count is correct, as a percentage, or ``-`` if none counts."""
    counts = Counter(map(kind_of, letters))
    total = sum(counts[kind] for kind in COUNTED)
    return f"{100 * counts[CORRECT] / total:.1f} %" if total else "-"
