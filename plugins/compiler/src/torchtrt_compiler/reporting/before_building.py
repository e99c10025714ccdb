"""Reports what a compilation decided before it builds engines, which takes most of the time."""

from __future__ import annotations

from torchtrt.callers import warn_caller
from torchtrt.errors import InputError, SizeWarning
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.partitioning import Partition
from torchtrt_compiler.reporting.partitions import (
    check_complete,
    describe_partition,
    warn_without_engines,
)
from torchtrt_compiler.reporting.unused_settings import (
    warn_of_large_weights,
    warn_of_unused_settings,
)
from torchtrt_compiler.sizes.program_sizes import CompiledSizes
from torchtrt_runtime.reports.report import CompilationReport


def report_before_building(
    report: CompilationReport,
    settings: CompilationSettings,
    program: Program,
    sizes: CompiledSizes,
    partition: Partition,
) -> None:
    """Fills in a report, and warns of what its reader should know before engines are built.

    Raises:
        InputError: With ``require_full_compilation``, sizes that were asked for are left out.
        FullCompilationError: With ``require_full_compilation``, something would stay in PyTorch.
    """
    report.passes, report.divided = program.passes, program.divided
    report.in_float32 = program.in_float32
    report.narrowed = list(sizes.narrowed)
    warn_of_unused_settings(settings, program)
    _warn_of_narrowed(report, settings)
    warn_of_large_weights(partition, settings.max_engine_bytes)
    describe_partition(report, partition)
    if settings.require_full_compilation:
        check_complete(report, "require_full_compilation")
    if not (report.blocks or settings.dryrun):
        warn_without_engines(report, settings.min_block_size)


def _warn_of_narrowed(report: CompilationReport, settings: CompilationSettings) -> None:
    """Warns about sizes that were asked for and are not compiled.

    Raises:
        InputError: There are some, and ``require_full_compilation`` is on.
    """
    if not report.narrowed:
        return
    message = "\n".join(map(str, report.narrowed))
    if settings.require_full_compilation:
        raise InputError(message)
    warn_caller(message, SizeWarning)
