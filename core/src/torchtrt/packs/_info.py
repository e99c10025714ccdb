"""Who a pack is: its name, the distribution that brought it, and where it stands in the order of packs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType

DISTRIBUTION_PREFIX = "torchtrt-converters-"
PACKAGE_PREFIX = "torchtrt_converters_"
LOCAL = "local"
"""The pack of what a program registers itself, with ``@dynamo_tensorrt_converter``."""

FIRST_PARTY_TIERS = MappingProxyType({"aten_core": 0, "aten_experimental": 1, "quantization": 2})
"""The packs of this project. A pack's name follows from its distribution's, so nobody else can take one."""

THIRD_PARTY_TIER = 3
LOCAL_TIER = 4

_PACK_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class PackInfo:
    """The provenance of a pack. All of it comes from the installed metadata, none from the pack's own code.

    Attributes:
        name: The pack's name, such as ``"vision"``.
        distribution: The distribution's name, ``"torchtrt-converters-vision"``; ``""`` for
            ``local``.
        version: The distribution's version.
        location: The folder it is installed in.
        tier: Its place in the order of packs: 0 aten_core, 1 aten_experimental, 2 other first-party
        packs, 3 third
            parties, 4 local. Within a tier packs are ordered by name.
    """

    name: str
    distribution: str = ""
    version: str = ""
    location: str = ""
    tier: int = THIRD_PARTY_TIER

    @property
    def order(self) -> tuple[int, str]:
        """The pack's place in the order of packs."""
        return self.tier, self.name

    @property
    def origin(self) -> str:
        """The distribution and its version, as a person reads them."""
        return f"{self.distribution} {self.version}" if self.distribution else "this program"


def is_pack_name(name: str) -> bool:
    """Returns whether ``name`` can be a pack's: lower-case letters, digits and single underscores."""
    return _PACK_NAME.fullmatch(name) is not None


def normalise(name: str) -> str:
    """Returns the pack name that a person means by a pack's or a distribution's name, in any spelling."""
    flat = re.sub(r"[-_.\s]+", "_", name.strip()).lower()
    return flat.removeprefix(PACKAGE_PREFIX)


def distribution_name(pack_name: str) -> str:
    """Returns the name of the distribution that a pack of this name comes from."""
    return DISTRIBUTION_PREFIX + pack_name.replace("_", "-")


def package_name(pack_name: str) -> str:
    """Returns the name of the import package that a pack of this name has its code in."""
    return PACKAGE_PREFIX + pack_name


def tier_of(pack_name: str) -> int:
    """Returns the tier of an installed pack."""
    return FIRST_PARTY_TIERS.get(pack_name, THIRD_PARTY_TIER)
