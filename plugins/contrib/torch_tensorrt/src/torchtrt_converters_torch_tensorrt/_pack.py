"""The entry point: who this pack is. It has no converter of its own; it adopts what installed distributions name."""

from torchtrt.packs import ConverterPack, hookimpl

GROUP = "torchtrt.torch_tensorrt"
"""The group of entry points whose modules are adopted when packs are loaded."""

pack = ConverterPack(
    "torch_tensorrt",
    api=(1, 0),
    summary="converters written for Torch-TensorRT",
    torch=">=2.9",
    tensorrt=">=8.6",
)


@hookimpl
def torchtrt_converter_pack() -> ConverterPack:
    """Returns the pack, still empty."""
    return pack


@hookimpl
def torchtrt_register_converters() -> None:
    """Adopts the modules that the entry points name. One that fails is a problem, and the others are adopted."""
    from importlib.metadata import distributions

    entry_points = []
    for distribution in distributions():
        try:
            if GROUP in (distribution.read_text("entry_points.txt") or ""):
                entries = distribution.entry_points.select(group=GROUP)
                entry_points += [(entry, distribution) for entry in entries]
        except Exception:  # torchtrt's own search reports it
            continue
    if entry_points:
        from torchtrt_converters_torch_tensorrt.entry_points import adopt_entry_points

        adopt_entry_points(entry_points)
