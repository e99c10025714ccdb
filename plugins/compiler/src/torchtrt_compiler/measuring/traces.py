"""The profile of a call in the format of Chrome's traces.

Source: "Trace Event Format", the Chromium project's description of the files that ``chrome://tracing`` reads.
"""

from __future__ import annotations

from typing import Any


def trace_of(profile: Any) -> dict[str, Any]:
    """Returns a trace of a ``torchtrt_compiler.measuring.profiling.CallProfile``: complete events, in microseconds."""
    entries = sorted(profile.entries, key=lambda entry: entry.position)
    rows: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    start = {"parts": 0.0}
    for entry in entries:
        is_kernel = entry.position < 0
        row = f"kernels of {entry.runs_in}" if is_kernel else entry.runs_in
        clock = row if is_kernel else "parts"
        begin = start.get(clock, 0.0)
        duration = entry.milliseconds * 1e3
        start[clock] = begin + duration
        events.append(
            {
                "name": entry.name,
                "cat": entry.kind,
                "ph": "X",
                "ts": begin,
                "dur": duration,
                "pid": 0,
                "tid": rows.setdefault(row, len(rows)),
                "args": {"nodes": list(entry.nodes), "calls": entry.calls},
            }
        )
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": row}}
        for row, number in rows.items()
    ]
    about = {
        "tensorrt": profile.tensorrt,
        "device": profile.device,
        "calls": profile.calls,
        "milliseconds": profile.milliseconds,
    }
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms", "otherData": about}
