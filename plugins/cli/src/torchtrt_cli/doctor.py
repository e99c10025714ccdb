"""``torchtrt doctor``: everything that is wrong here, and what to do. It starts whatever is broken."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchtrt import __version__
from torchtrt.errors import TorchTRTError
from torchtrt.packs.info import TENSORRTS
from torchtrt.packs.listing import NOT_LOADED
from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.scan import scan
from torchtrt_cli import packs
from torchtrt_cli.installation import installation_problems, pieces
from torchtrt_cli.loading_effects import Watch
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.parser import NO_LOAD
from torchtrt_runtime.reports.text_tables import Listing

NO_TENSORRT = "none can be used"


def run(arguments: argparse.Namespace) -> int:
    """Prints versions, packs, and everything that is wrong; returns 1 if anything is."""
    versions = {
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "torchtrt": __version__,
    }
    broken = list(installation_problems())
    failure = _import_pytorch(versions)
    if failure is not None:
        broken.append(failure)
        pack_listing = packs.unloaded("PyTorch cannot be imported", NOT_LOADED)
    elif arguments.no_load:
        pack_listing = packs.unloaded(f"not loaded, because of {NO_LOAD}")
    else:
        watch = Watch()
        pack_listing = packs.loaded(watch)
        broken += [*watch.problems, *_checked(), *_without_kernels(), *_describe_tensorrt(versions)]
    capabilities = _capabilities() if versions.get("TensorRT") not in (None, NO_TENSORRT) else []
    versions["TensorRTs installed"] = ", ".join(_tensorrts()) or "none"
    if arguments.locked is not None:
        broken += _differences(Path(arguments.locked), failure is None and not arguments.no_load)
    pack_listing = dataclasses.replace(
        pack_listing, problems=_without_repetitions((*pack_listing.problems, *broken))
    )
    installed = pieces()
    if arguments.json:
        answer = packs.as_json(pack_listing)
        answer["versions"] = versions
        answer["distributions"] = [dataclasses.asdict(piece) for piece in installed]
        answer["capabilities"] = capabilities
        print_json(answer)
    else:
        out = console()
        for name, version in versions.items():
            out.print(f"{name}: {version}")
        for piece in installed:
            out.print(f"installed: {piece}")
        if capabilities:
            out.print(_capability_table(capabilities))
        packs.show(pack_listing)
        if not (pack_listing.problems or pack_listing.conflicts):
            out.print("Nothing is wrong.")
    return 1 if pack_listing.problems or pack_listing.conflicts else 0


def _import_pytorch(versions: dict[str, str]) -> Problem | None:
    """Fills in the versions of PyTorch and the GPU, or returns why it cannot be imported."""
    try:
        import torch
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever stops it, this command reports
        versions["PyTorch"] = "cannot be imported"
        hint = (
            "Everything else needs it. If another problem here is of metadata, mend that first; else install PyTorch "
            "again, or try TORCH_DEVICE_BACKEND_AUTOLOAD=0, which imports none of its extensions."
        )
        return Problem(f"`import torch` fails: {describe(error)}", hint, "torch-failed")
    versions["PyTorch"] = str(torch.__version__)
    versions["GPU"] = _describe_gpu()
    return None


def _describe_gpu() -> str:
    """Returns a line about the GPU that PyTorch uses, or the reason that it uses none."""
    import torch

    try:
        if not torch.cuda.is_available():
            built = (
                f"built for CUDA {torch.version.cuda}"
                if torch.version.cuda
                else "built without CUDA"
            )
            return f"none that PyTorch can use ({built})"
        properties = [
            torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())
        ]
        names = [
            f"{device.name} (compute capability {device.major}.{device.minor})"
            for device in properties
        ]
        return f"{', '.join(names)}, CUDA {torch.version.cuda}"
    except Exception as error:  # a driver that does not answer
        return f"PyTorch cannot find a GPU: {describe(error)}"


def _describe_tensorrt(versions: dict[str, str]) -> Iterator[Problem]:
    """Fills in the TensorRT in use; yields why there is none."""
    from torchtrt.tensorrt.selection import describe as describe_tensorrt
    from torchtrt.tensorrt.selection import devices, implementation

    try:
        description = getattr(implementation(), "DESCRIPTION", "")
        versions["TensorRT"] = describe_tensorrt() + (f", {description}" if description else "")
        versions["Engines run on"] = devices()
    except TorchTRTError as error:
        versions["TensorRT"] = NO_TENSORRT
        yield Problem(f"no TensorRT can be used: {error}", "", "tensorrt-failed")


def _capabilities() -> list[dict[str, Any]]:
    """Returns what the TensorRT in use can do, as plain data."""
    from torchtrt.tensorrt import capability_table

    return [
        {
            "name": row.capability.name,
            "group": row.capability.group,
            "available": row.available,
            "since": row.capability.since,
            "reason": row.reason,
        }
        for row in capability_table()
    ]


def _capability_table(rows: Sequence[Mapping[str, Any]]) -> Listing:
    """Returns a table with the capabilities of the TensorRT in use."""
    cells = [
        (
            row["group"],
            row["name"],
            "yes" if row["available"] else "no",
            row["reason"] or f"since {row['since']}",
        )
        for row in rows
    ]
    headings = ("part", "capability", "available", "reason or first version")
    return table("Capabilities of the TensorRT in use", headings, cells)


def _tensorrts() -> Iterator[str]:
    yield from (
        extension.info.origin for extension in scan().others if extension.info.group is TENSORRTS
    )
    if importlib.util.find_spec("tensorrt"):
        try:
            yield f"tensorrt {importlib.metadata.version('tensorrt')}"
        except importlib.metadata.PackageNotFoundError:
            yield "tensorrt (of no distribution)"


def _checked() -> Iterator[Problem]:
    """Yields what the packs in use find wrong themselves."""
    from torchtrt.packs.load import call_hook
    from torchtrt.packs.state import loaded_packs

    hint = "Report this to the pack's authors."
    for loaded in loaded_packs():
        try:
            for problem in call_hook(loaded.check, pack=loaded.pack) or ():
                if not isinstance(problem, Problem):
                    what = f"torchtrt_check gave a {type(problem).__name__}, not a Problem"
                    problem = Problem(what, hint, "bad-hook")
                yield problem.about(loaded.info)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, and whatever else a pack may raise
            what = f"torchtrt_check raised {describe(error)}"
            yield Problem(what, hint, "hook-failed").about(loaded.info)


def _without_kernels() -> Iterator[Problem]:
    """Yields the plugins of packs that no GPU can run."""
    from torchtrt.packs.state import loaded_packs

    for loaded in loaded_packs():
        for plugin in loaded.pack.plugins:
            objection = None if plugin.aot else plugin.objection_to("cuda")
            if objection is not None:
                what = f"no GPU can run its plugin of {plugin.key.name}: {objection.reason}"
                yield Problem(what, objection.advice, "no-kernel").about(loaded.info)


def _differences(path: Path, are_loaded: bool) -> Iterator[Problem]:
    """Yields how what is installed differs from a lock."""
    from torchtrt_cli import lock

    locked = lock.read(path)
    if not are_loaded:
        yield Problem(
            f"{path} cannot be compared: no pack is loaded", "See the other problems.", "locked"
        )
        return
    hint = f"If this is right, run `torchtrt lock` and commit {path.name}; else install what was locked."
    differences = list(lock.differences(locked, lock.current()))
    for index, difference in enumerate(differences, 1):
        yield Problem(difference, hint if index == len(differences) else "", "locked")


def _without_repetitions(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Leaves out what two searches have found: a pack whose metadata is broken, or that is hidden."""
    first: dict[tuple[str, ...], Problem] = {}
    for problem in problems:
        of_one = problem.code in ("bad-metadata", "shadowed")
        what = problem.location if of_one else problem.what
        name = problem.distribution.lower().replace("_", "-")
        first.setdefault((problem.code, name, problem.pack if not of_one else "", what), problem)
    return tuple(first.values())
