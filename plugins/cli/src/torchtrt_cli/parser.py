"""The command line: every command, its flags, and the function that runs it, as ``"module:function"``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from torchtrt import __version__

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

NO_LOAD = "--no-load"
"""The flag of what imports no pack."""

LOCK = "torchtrt.lock"
"""The file that ``torchtrt lock`` writes."""


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line.

    Of what it parses, ``run`` is the function to call. ``recovers`` is whether it works without packs and PyTorch,
    and ``lists_problems`` whether its answer has the problems of packs.
    """
    parser = argparse.ArgumentParser(
        prog="torchtrt", description="Shows which converter packs there are and what they convert."
    )
    parser.add_argument("--version", action="version", version=f"torchtrt {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_commands_on_packs(commands)
    _add_commands_on_models(commands)
    _add_commands_on_files(commands)
    _add_triton(commands)
    return parser


def _add_commands_on_packs(commands: Commands) -> None:
    """Adds the commands that list packs and what they convert."""
    summary = "list the installed packs, in use or not, and every problem with them"
    packs = _add(commands, "packs", summary, "torchtrt_cli.packs:run")
    _add_no_load(packs)
    use = "list the packs of the catalogue that are not installed"
    packs.add_argument("--available", action="store_true", help=use)
    use = "list the packs of the catalogue with this text in their names, summaries or ops, such as nms"
    packs.add_argument("--search", metavar="TEXT", help=use)
    packs.set_defaults(lists_problems=True)

    summary = (
        "change your catalogue of packs that may not be installed, or write the list of a pack"
    )
    catalogue = _add(commands, "catalogue", summary, "torchtrt_cli.catalogue:run")
    catalogue.set_defaults(recovers=True)
    use = "add packs, remove one, or write catalogue.json into the package of a pack in use"
    catalogue.add_argument("action", choices=("add", "remove", "write"), help=use)
    use = (
        "add: a wheel, a file or a URL; remove and write: the name of a pack or of its distribution"
    )
    catalogue.add_argument("subject", metavar="SUBJECT", help=use)

    summary = "look for everything that is wrong here, in the packs too, and print what to do"
    doctor = _add(commands, "doctor", summary, "torchtrt_cli.doctor:run")
    _add_no_load(doctor)
    use = f"compare with the file that `torchtrt lock` wrote, ./{LOCK} if none is named: who converts what"
    doctor.set_defaults(recovers=True, lists_problems=True)
    doctor.add_argument("--locked", nargs="?", const=LOCK, metavar="FILE", help=use)

    summary = f"write into ./{LOCK} who converts what, to keep and to compare"
    _add(commands, "lock", summary, "torchtrt_cli.lock:run")

    summary = "list which packs provide which op, one line an op, or all about one op"
    converters = _add(commands, "converters", summary, "torchtrt_cli.converters:run")
    examples = (
        "an op in any spelling: aten.gelu, aten::add.Tensor; or a pattern for a list: 'aten.*pool*'"
    )
    converters.add_argument("op", nargs="?", metavar="OP", help=examples)
    use = "list every converter and decomposition, with its function, dtypes and checks"
    converters.add_argument("--verbose", action="store_true", help=use)

    _add_verify(commands)
    summary = "show how many of PyTorch's own samples of each op are converted, and what is not"
    coverage = _add(commands, "coverage", summary, "torchtrt_cli.coverage:run")
    examples = "an op: torch.add, nn.functional.relu, softmax"
    coverage.add_argument("op", nargs="?", metavar="OP", help=examples)


def _add_verify(commands: Commands) -> None:
    """Adds the command that verifies a TensorRT."""
    summary = "run everything with a known answer on the TensorRT in use, and write a report of what disagrees"
    verify = _add(commands, "verify", summary, "torchtrt_cli.verify:run")
    parts = ("cases", "samples", "architectures")
    use = "run only cases of packs, PyTorch's samples, or architectures of libraries; may be given several times"
    verify.add_argument("--part", action="append", dest="parts", choices=parts, help=use)
    use = "run only the cases of a pack; may be given several times"
    verify.add_argument("--packs", action="append", default=[], metavar="NAME", help=use)
    use = "run only ops whose names match, such as aten.gelu or 'aten.*pool*'; may be given several times"
    verify.add_argument("--ops", action="append", default=[], metavar="PATTERN", help=use)
    use = "run one case of a report again; may be given several times"
    verify.add_argument("--case", action="append", default=[], dest="cases", metavar="ID", help=use)
    use = "stop after so many seconds; another run goes on there"
    verify.add_argument("--time-limit", type=float, metavar="SECONDS", help=use)
    use = "end a case that gives no answer for so many seconds (120)"
    verify.add_argument("--case-time-limit", type=float, default=120.0, metavar="SECONDS", help=use)
    use = "the number of processes that build engines (half of the CPU cores, at most 8)"
    verify.add_argument("--workers", type=int, metavar="N", help=use)
    use = "the folder of the report and of the outcomes (torchtrt-verify)"
    verify.add_argument(
        "--output", type=Path, default=Path("torchtrt-verify"), metavar="FOLDER", help=use
    )
    _add_set(verify)


def _add_commands_on_models(commands: Commands) -> None:
    """Adds the commands that explain, show and measure models."""
    summary = "show what converts a model's nodes, or an op, and why"
    explain = _add(commands, "explain", summary, "torchtrt_cli.explain:run")
    kinds = "a program saved by torch.export.save, or an op in any spelling"
    explain.add_argument("subject", metavar="MODEL.pt2|OP", help=kinds)
    use = "write a page of the model's nodes, to open in a browser; it needs no network"
    explain.add_argument("--html", type=Path, metavar="FILE", help=use)
    _add_set(explain)
    _add_keep(explain, "build the engines too, and write")

    summary = "compile a program, write it to a file, and compare it with eager PyTorch"
    compile_ = _add(commands, "compile", summary, "torchtrt_cli.compile:run")
    use = "a program saved by torch.export.save, whose sizes vary as it was exported, or a TorchScript model"
    compile_.add_argument("model", metavar="MODEL.pt2", help=use)
    use = "sizes and dtype of an input of a TorchScript model, such as 1-8,3,224,224:float16; one for each input"
    compile_.add_argument("--input", action="append", default=[], metavar="SIZES", help=use)
    use = "write the compiled model, for torchtrt.load"
    compile_.add_argument("--output", type=Path, metavar="OUT.pt2", help=use)
    use = "write the plan of a model that is one engine, and its description in OUT.plan.json"
    compile_.add_argument("--engine", type=Path, metavar="OUT.plan", help=use)
    _add_set(compile_)
    _add_keep(compile_)

    summary = "show what a saved model holds: inputs, engines, settings, and who converted what"
    inspect = _add(commands, "inspect", summary, "torchtrt_cli.inspect:run")
    inspect.add_argument("file", metavar="FILE", help="a model saved by torchtrt.save")

    summary = "measure where the time of a model's calls goes, by layer, kernel and op"
    profile = _add(commands, "profile", summary, "torchtrt_cli.profile:run")
    kinds = (
        "a program saved by torch.export.save, which is compiled, or a model saved by torchtrt.save"
    )
    profile.add_argument("model", metavar="MODEL.pt2", help=kinds)
    _add_set(profile)
    _add_keep(profile)
    use = "the safetensors file with the weights of a saved model that has none (strip_engine_weights)"
    profile.add_argument("--weights", metavar="FILE", help=use)
    use = "how many calls to measure (20)"
    profile.add_argument("--calls", type=int, default=20, metavar="N", help=use)


def _add_commands_on_files(commands: Commands) -> None:
    """Adds the commands that keep and write files."""
    cache = _add(
        commands,
        "cache",
        "show the engines that were kept, or remove them",
        "torchtrt_cli.cache:run",
    )
    cache.add_argument("folder", nargs="?", metavar="FOLDER", help="the cache's folder")
    cache.add_argument("--clear", action="store_true", help="remove all of them")

    summary = "write a converter pack, ready to be tested and published, into a new folder here"
    new_pack = _add(commands, "new-pack", summary, "torchtrt_cli.new_pack:run")
    new_pack.set_defaults(recovers=True)
    new_pack.add_argument("name", metavar="NAME", help="the pack's name, such as vision")
    use = "write an op with a kernel of its own, which engines run as a plugin, in place of a converter"
    new_pack.add_argument("--plugin", action="store_true", help=use)


def _add_triton(commands: Commands) -> None:
    """Adds the command that writes model repositories."""
    summary = "add a saved model to a model repository of the Triton Inference Server"
    triton = _add(commands, "triton", summary, "torchtrt_cli.triton:run")
    triton.add_argument("model", metavar="MODEL.pt2", help="a model saved by torchtrt.save")
    triton.add_argument("repository", metavar="REPOSITORY", help="the repository's folder")
    triton.add_argument("--name", help="the model's name in Triton (the name of the file)")
    use = "the number of the version (the next one)"
    triton.add_argument("--version", type=int, metavar="N", help=use)
    use = "which of Triton's backends runs the model (auto: TensorRT where it can)"
    triton.add_argument(
        "--backend", choices=("auto", "tensorrt", "python"), default="auto", help=use
    )
    use = "how many instances of the model run on each GPU, or on the CPU (1)"
    triton.add_argument("--instances", type=int, metavar="N", help=use)
    use = (
        "the number of a GPU that runs the model; repeat it for several (all that the server sees)"
    )
    triton.add_argument("--gpu", type=int, action="append", dest="gpus", metavar="N", help=use)
    use = "run requests together as one batch: each row of a result must depend on its own row only"
    triton.add_argument("--dynamic-batching", action="store_true", default=None, help=use)
    use = "how many microseconds a request waits for others to be run with"
    triton.add_argument("--max-queue-delay", type=int, metavar="N", help=use)
    use = "a virtual environment on the server for the Python backend"
    triton.add_argument("--environment", metavar="FOLDER", help=use)


def _add(commands: Commands, name: str, summary: str, run: str) -> argparse.ArgumentParser:
    """Adds a command with the flags that all have, and returns its parser."""
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the answer as JSON, in an order that never varies",
    )
    use = "import a library first, for the ops that it registers; may be given several times"
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="LIBRARY", help=use
    )
    parser.set_defaults(run=run, recovers=False, lists_problems=False)
    return parser


def _add_set(parser: argparse.ArgumentParser) -> None:
    use = "a setting to compile with, such as autocast=float16; may be given several times"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=use)


def _add_keep(parser: argparse.ArgumentParser, verb: str = "write") -> None:
    use = f"{verb} the graph after each step, a log of decisions, TensorRT's layers, and a trace of the calls, if any"
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help=use)


def _add_no_load(parser: argparse.ArgumentParser) -> None:
    use = "read installed metadata only and import no pack: works whatever a pack does"
    parser.add_argument(NO_LOAD, action="store_true", help=use)
