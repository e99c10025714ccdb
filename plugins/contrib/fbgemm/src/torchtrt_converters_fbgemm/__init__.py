"""torchtrt converter pack: jagged tensors of FBGEMM, as recommendation models use them."""

from torchtrt_blocks.registration import CheckedPack

pack = CheckedPack(
    "fbgemm",
    api=(1, 0),
    summary="jagged tensors of FBGEMM",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("decompositions",),
)
