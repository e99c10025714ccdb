"""The identity of an installed extension: its name, its distribution, and its place in the order of packs."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from types import MappingProxyType

API_VERSION = (1, 0)
"""The contract of this torchtrt, ``(major, minor)``: a pack of this major and no greater minor loads."""

PROJECT = "torchtrt"
"""The prefix of the groups of entry points, and the name under which hooks are marked."""

ALL = "torchtrt-all"
"""The distribution without code that brings the first-party ones; what it requires is first-party."""

LOCAL = "local"
"""The pack of what a program registers itself, with ``@dynamo_tensorrt_converter``."""

FIRST_TIERS = MappingProxyType({"aten_core": 0, "aten_experimental": 1})
"""The two packs that every other pack comes after."""

FIRST_PARTY_TIER = 2
THIRD_PARTY_TIER = 3
LOCAL_TIER = 4

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class EntryPointGroup:
    """A group of entry points, through which installed distributions extend torchtrt.

    Attributes:
        name: The name of the group.
        noun: The word for its extensions in messages.
        prefix: The prefix of a distribution's name, before the extension's own name.
    """

    name: str
    noun: str
    prefix: str

    def distribution_name(self, name: str) -> str:
        """Returns the name of the distribution that an extension of this name comes from."""
        return self.prefix + name.replace("_", "-")

    def package_name(self, name: str) -> str:
        """Returns the name of the import package that an extension of this name has its code in."""
        return (self.prefix + name).replace("-", "_")


PACKS = EntryPointGroup("torchtrt.converters", "pack", "torchtrt-converters-")
TENSORRTS = EntryPointGroup("torchtrt.tensorrt", "TensorRT", "torchtrt-")
FRONT_ENDS = EntryPointGroup("torchtrt.frontends", "front end", "torchtrt-")
ENTRY_POINT_GROUPS = (PACKS, TENSORRTS, FRONT_ENDS)


@dataclass(frozen=True, slots=True)
class PackInfo:
    """The provenance of a pack, or of another installed extension. It comes from the installed metadata alone.

    Attributes:
        name: The pack's name, such as ``"vision"``.
        distribution: The distribution's name, ``"torchtrt-converters-vision"``; ``""`` for ``local``.
        version: The distribution's version.
        location: The folder it is installed in.
        tier: Its place in the order of packs: 0 aten_core, 1 aten_experimental, 2 other first-party
            packs, 3 third parties, 4 local. Within a tier packs are ordered by name.
        group: The entry-point group that it comes through.
    """

    name: str
    distribution: str = ""
    version: str = ""
    location: str = ""
    tier: int = THIRD_PARTY_TIER
    group: EntryPointGroup = PACKS

    @property
    def order(self) -> tuple[int, str]:
        """The pack's place in the order of packs."""
        return self.tier, self.name

    @property
    def label(self) -> str:
        """The pack's name and version; the name alone of what has no version, as ``local``."""
        return f"{self.name} {self.version}".rstrip()

    @property
    def origin(self) -> str:
        """The distribution and its version, as a user reads them."""
        return f"{self.distribution} {self.version}" if self.distribution else "this program"

    @property
    def advice(self) -> str:
        """The remedy for a failure of the code of the pack, as a sentence."""
        if not self.distribution:
            return "Mend it in this program."
        return f"Report this to the pack's authors; TORCHTRT_PACKS_DISABLE={self.name} goes without the pack."


def is_pack_name(name: str) -> bool:
    """Returns whether ``name`` can be a pack's: lower-case letters, digits and single underscores, no keyword."""
    return _NAME.fullmatch(name) is not None and not keyword.iskeyword(name)


def normalize(name: str) -> str:
    """Returns the pack name that a user means by a pack's or a distribution's name, in any spelling."""
    return re.sub(r"[-_.\s]+", "_", name.strip()).lower().removeprefix(PACKS.package_name(""))
