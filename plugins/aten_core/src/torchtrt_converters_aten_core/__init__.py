"""torchtrt's converter pack for ATen and for Python's operators on sizes.

One module holds the converters of one family; ``impl`` holds the building blocks they are made
of, which other packs may use.
"""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "aten_core",
    api=(1, 0),
    summary="ATen, prims and Python operators",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "decompositions", "exporting", "passes"),
)
