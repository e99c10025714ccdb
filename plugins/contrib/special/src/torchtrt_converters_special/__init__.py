"""Special functions: gamma, error and Bessel functions, orthogonal polynomials."""

from torchtrt_blocks.registration import CheckedPack

pack = CheckedPack(
    "special",
    api=(1, 0),
    summary="special functions and orthogonal polynomials",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "decompositions"),
)
