"""The pack, which the entry point names. Nothing here imports diffusers.

It has no converter of its own: the ops of diffusers' models are those of Core ATen.
"""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "diffusers",
    api=(1, 0),
    summary="pipelines of diffusers",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("followed",),
)
