"""torchtrt's converter pack for ATen and for Python's operators on sizes.

One module holds the converters of one family. They are made of the building blocks of ``torchtrt_blocks``.
"""

from torchtrt_blocks.registration import CheckedPack

pack = CheckedPack(
    "aten_core",
    api=(1, 0),
    summary="ATen, prims and Python operators",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "decompositions", "exporting", "passes", "without_sizes"),
)
