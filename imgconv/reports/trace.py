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
        _name("process_name", 0, f"{profile.device.name}, driver {profile.device.driver_version}"),
        _name("thread_name", LAUNCHES, "launches"), _name("thread_name", TRANSFERS, "uploads and downloads"),
        *(_complete(each.launch.name, each.launch.operation, LAUNCHES, each.span, _facts(each))
          for each in profile.launches),
    ]
    for kind, spans in (("upload", profile.shown.uploads), ("download", profile.shown.downloads)):
        buffers = profile.plan.input_buffers if kind == "upload" else profile.plan.output_buffers
        events += [
            _complete(f"{kind} {name}", kind, TRANSFERS, span, {"bytes": buffers[name].bytes})
            for name, span in spans.items()
        ]
    if profile.host:
        # The host begins once the downloads are over.
        events.append(_name("thread_name", HOST, "host"))
        start = profile.shown.end
        events += [
            _complete(each.node, each.op_type, HOST, (start + each.start, start + each.end), {"bytes": each.bytes})
            for each in profile.host.shown
        ]
    return {
        "traceEvents": [*events, *_counters(profile)], "displayTimeUnit": "ms",
        "otherData": {"model": profile.model, "device": profile.device.key},
    }


def _facts(each: LaunchProfile) -> dict[str, Any]:
    launch = each.launch
    return {
        "operation": launch.description, "kernel": launch.specialisation, "ONNX nodes": ", ".join(launch.origin),
        "multiply-adds": launch.multiply_adds, "bytes": launch.moved_bytes, "median ms": each.seconds * 1e3,
        "share": each.share, "of peak": each.of_peak, "bound by": each.bound,
    }


def _counters(profile: Profile) -> Iterator[dict[str, Any]]:
    """Bytes of live textures from the start of each launch on, and none after the last one."""
    spans = profile.shown.launches
    changes = [*zip((start for start, _ in spans), profile.live_bytes, strict=True)]
    if spans:
        changes.append((spans[-1][1], 0))
    for seconds, count in changes:
        yield {
            "name": "live activation bytes", "ph": "C", "pid": DEVICE, "ts": seconds * 1e6, "args": {"bytes": count},
        }


def _complete(name: str, category: str, thread: int, span: Span, facts: dict[str, Any]) -> dict[str, Any]:
    start, end = span
    return {
        "name": name, "cat": category, "ph": "X", "pid": DEVICE, "tid": thread, "ts": start * 1e6,
        "dur": (end - start) * 1e6, "args": facts,
    }


def _name(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": DEVICE, "tid": thread, "args": {"name": name}}
