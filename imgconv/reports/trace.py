"""Writes a profile in Chrome's trace event format, which https://ui.perfetto.dev and chrome://tracing read.

The format is described in Chromium's document "Trace Event Format": complete events (ph X) with ts and dur in
microseconds, counters (C), and metadata (M) that name processes and threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from imgconv.reports.profile import LaunchProfile, Profile
from imgconv.runtime.measuring import Span

DEVICE = 1
LAUNCHES, TRANSFERS, HOST = 1, 2, 3


def trace(profile: Profile) -> dict[str, Any]:
    """The run that the profile shows: launches, uploads, downloads, and the bytes of live textures, over time."""
    events = [
        _name_event("process_name", 0, f"{profile.device.name}, driver {profile.device.driver_version}"),
        _name_event("thread_name", LAUNCHES, "launches"),
        _name_event("thread_name", TRANSFERS, "uploads and downloads"),
        *(_event(each.launch.name, each.launch.operation, LAUNCHES, each.span, _event_arguments(each))
          for each in profile.launches),
    ]
    for kind, spans in (("upload", profile.median_run.uploads), ("download", profile.median_run.downloads)):
        buffers = profile.plan.input_buffers if kind == "upload" else profile.plan.output_buffers
        events += [
            _event(f"{kind} {name}", kind, TRANSFERS, span, {"bytes": buffers[name].bytes})
            for name, span in spans.items()
        ]
    if profile.host:
        # The host begins once the downloads are over.
        events.append(_name_event("thread_name", HOST, "host"))
        start = profile.median_run.end
        events += [
            _event(each.node, each.op_type, HOST, (start + each.start, start + each.end), {"bytes": each.bytes})
            for each in profile.host.shown
        ]
    return {
        "traceEvents": [*events, *_memory_events(profile)], "displayTimeUnit": "ms",
        "otherData": {"model": profile.model, "device": profile.device.key},
    }


def _event_arguments(each: LaunchProfile) -> dict[str, Any]:
    launch = each.launch
    return {
        "operation": launch.description, "kernel": launch.specialisation, "ONNX nodes": ", ".join(launch.origin),
        "multiply-adds": launch.multiply_adds, "bytes": launch.moved_bytes, "median ms": each.seconds * 1e3,
        "share": each.share, "of peak": each.of_peak, "bound by": each.bound,
    }


def _memory_events(profile: Profile) -> Iterator[dict[str, Any]]:
    """Bytes of live textures from the start of each launch on, and none after the last one."""
    spans = profile.median_run.launches
    changes = [*zip((start for start, _ in spans), profile.live_bytes, strict=True)]
    if spans:
        changes.append((spans[-1][1], 0))
    for seconds, count in changes:
        yield {
            "name": "live activation bytes", "ph": "C", "pid": DEVICE, "ts": seconds * 1e6, "args": {"bytes": count},
        }


def _event(name: str, category: str, thread: int, span: Span, facts: dict[str, Any]) -> dict[str, Any]:
    start, end = span
    return {
        "name": name, "cat": category, "ph": "X", "pid": DEVICE, "tid": thread, "ts": start * 1e6,
        "dur": (end - start) * 1e6, "args": facts,
    }


def _name_event(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": DEVICE, "tid": thread, "args": {"name": name}}
