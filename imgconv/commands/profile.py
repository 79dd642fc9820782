"""imgconv profile: time every launch of a model and compare it with the device's peaks."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from imgconv.arrays import Array, Shapes
from imgconv.commands.shared_arguments import add_model_arguments, add_picture_arguments, add_precision_argument
from imgconv.commands.shared_arguments import add_strict_argument, check_sizes, positive
from imgconv.commands.command_line_inputs import load_model, parse_inputs
from imgconv.files.disk import check_folder, atomic_write
from imgconv.preprocess import read_picture
from imgconv.reports import terminal
from imgconv.reports.host_profile import HostProfile
from imgconv.reports.profile import LaunchProfile, Profile, headline, html_page, measure, percent
from imgconv.reports.table import Column, print_table
from imgconv.reports.trace import trace
from imgconv.precision.calibration_inputs import synthetic_inputs

DESCRIPTION = """\
Time each launch with OpenCL events, and show the slowest launches. For each launch the table shows

  - its time, the median of the runs, and its share of the total;
  - multiply-adds, and the bytes that it must move: each input value once, and each output value once;
  - the fraction of the device's peak: the larger of arithmetic rate / peak rate and bandwidth / peak bandwidth.

Both peaks are measured before the runs, with a multiply-add kernel and with a copy larger than any cache. The fraction
can exceed 100 % (printed as ">110%") if a cache holds the textures, or if a Winograd kernel does fewer multiply-adds
than the direct convolution that is counted.

An input without a picture or an array gets synthetic values from 0 to 1 with the spectrum of natural pictures."""

REPEAT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_precision_argument(parser)
    add_strict_argument(parser)
    parser.add_argument("picture", metavar="PICTURE", nargs="?", help="a picture file")
    parser.add_argument(
        "--repeat", type=positive, default=REPEAT, metavar="N", help="number of timed runs (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="show every launch, in order of execution, and every column")
    parser.add_argument("--trace", metavar="FILE", help="write a trace of one run for Perfetto and chrome://tracing")
    parser.add_argument(
        "--html", metavar="FILE",
        help="write an HTML page with a timeline, a roofline, the graph and the texture memory"
    )
    add_picture_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Prints the profile and writes the files. Raises what imgconv.load and Model.run raise, and InputError."""
    check_folder(options.trace, options.html)
    with terminal.ProgressSpinner(f"reading {options.model}") as progress:
        arrays, shapes = read_inputs(options)
        model = load_model(options, shapes, progress)
        inputs = {**synthetic_inputs(model.graph)[0], **arrays}
        profile = measure(Path(options.model).name, model, inputs, options.repeat, progress)
    if options.json:
        terminal.print_json(profile.to_json())
    else:
        print_profile(profile, options.all)
    files = {}
    if options.trace:
        files[options.trace] = json.dumps(trace(profile), ensure_ascii=False, allow_nan=False)
    if options.html:
        files[options.html] = html_page(profile)
    for path, text in files.items():
        with atomic_write(path) as file:
            file.write(text.encode())
        if not options.json:
            terminal.console().print(f"written to {path}")


def read_inputs(options: argparse.Namespace) -> tuple[dict[str, Array], Shapes]:
    """The given arrays by input name, and the shapes to load with. Raises InputError, ModelError."""
    options.pictures = [options.picture] if options.picture else []
    given = parse_inputs(options)
    arrays, shapes = given.with_picture(read_picture(options.picture) if options.picture else None)
    check_sizes(given.missing, shapes)
    return arrays, shapes


def print_profile(profile: Profile, everything: bool = False) -> None:
    """Prints the headline, the slowest launches, sums by kind of work, and totals. everything: all launches in order.

    The slowest come first otherwise, SLOWEST of them.
    """
    console = terminal.console()
    runs = f"{len(profile.runs)} run{'s' * (len(profile.runs) > 1)}"
    console.print(f"{profile.model} on {profile.device}, median of {runs}", style="bold")
    console.print(f"{headline(profile)}\n", style="bold")
    numbered = [*enumerate(profile.launches)]
    slowest = sorted(numbered, key=lambda pair: -pair[1].seconds)
    shown = numbered if everything else slowest[:SLOWEST]
    unit, scale = ("ms", 1e3) if profile.seconds >= 1e-3 else ("us", 1e6)
    columns, sums = ([replace(c, title=unit) if c.title == "ms" else c for c in of] for of in (LAUNCHES, SUMS))
    print_table(console, columns, [_table_row(number, each, scale) for number, each in shown], everything, hint="--all")
    if len(shown) < len(numbered):
        rest = sum(each.seconds for _, each in slowest[len(shown):])
        console.print(f"{len(numbered) - len(shown)} faster launches take {rest * 1e3:.3f} ms: --all")
    console.print()
    print_table(console, sums, [(
        of.operation, str(of.launches), f"{of.seconds * scale:.3f}", f"{of.share:.1%}",
        f"{of.multiply_adds / 1e6:.2f}", f"{of.bytes / 1e6:.2f}",
    ) for of in profile.totals_by_operation])
    console.print()
    for line in totals_as_text(profile):
        console.print(line)
    if profile.host:
        print_host(profile.host)


def print_host(host: HostProfile) -> None:
    """Prints the longest nodes of the host, their sum, and the bytes that come from the device."""
    console = terminal.console()
    longest = sorted(host.shown, key=lambda each: each.start - each.end)[:SLOWEST]
    console.print()
    print_table(console, HOST, [
        (f"{e.op_type} {e.node}", f"{(e.end - e.start) * 1e3:.3f}", f"{e.bytes / 1e3:.1f}") for e in longest
    ])
    listed = ", ".join(f"{name} {count / 1e3:.1f}" for name, count in host.boundary_bytes.items())
    boundary = sum(host.boundary_bytes.values())
    console.print(
        f"{len(host.shown)} nodes on the host take {host.seconds * 1e3:.3f} ms; {boundary / 1e3:.1f} kB come from the "
        f"device" + (f": {listed}" if listed else "")
    )


SLOWEST = 10
LAUNCHES = (
    Column("#"), Column("writes", text=True), Column("ms"), Column("share", 1), Column("of peak", 2),
    Column("bound by", 3, text=True), Column("operation, with fused operations", 4, text=True),
    Column("M multiply-adds", 6), Column("kB", 7), Column("GFLOP/s", 5), Column("GB/s", 5),
    Column("from ONNX nodes", 8, text=True),
)
SUMS = (
    Column("work", text=True), Column("launches", 1), Column("ms"), Column("share"), Column("M multiply-adds", 2),
    Column("MB", 3),
)
HOST = (Column("on the host", text=True), Column("ms"), Column("kB", 1))


def _table_row(number: int, each: LaunchProfile, scale: float) -> tuple[str, ...]:
    """The cells of a launch. scale: units of time in a second."""
    launch = each.launch
    computes = launch.multiply_adds > 0
    return (
        str(number), launch.name, f"{each.seconds * scale:.3f}", f"{each.share:.1%}",
        percent(each.of_peak), each.bound, launch.description,
        f"{launch.multiply_adds / 1e6:.2f}" if computes else "", f"{launch.moved_bytes / 1e3:.1f}",
        f"{each.flops / 1e9:.2f}" if computes else "", f"{each.bandwidth / 1e9:.2f}", ", ".join(launch.origin),
    )


def totals_as_text(profile: Profile) -> list[str]:
    """The sums, the device's peaks and the textures' bytes in words."""
    of = profile.to_json()["totals"]
    peaks, seconds = profile.peaks, of["seconds"] or float("inf")
    return [
        f"{of['launches']} launches take {of['seconds'] * 1e3:.3f} ms: {of['multiply_adds'] / 1e6:.1f} M multiply-adds "
        f"at {2 * of['multiply_adds'] / seconds / 1e9:.2f} GFLOP/s, {of['bytes'] / 1e6:.2f} MB at "
        f"{of['bytes'] / seconds / 1e9:.2f} GB/s, {percent(profile.of_peak)} of peak",
        f"a run takes {of['timeline_seconds'] * 1e3:.3f} ms from the first launch to the last (with events), "
        f"{of['wall_seconds'] * 1e3:.3f} ms from input to output arrays (without)",
        f"peaks measured: {peaks.operations / 1e9:.1f} GFLOP/s, {peaks.bytes / 1e9:.2f} GB/s",
        f"weights {of['weight_bytes'] / 1e6:.2f} MB, activations {of['activation_bytes'] / 1e6:.2f} MB in "
        f"{of['activation_places']}; at most {of['live_bytes'] / 1e6:.2f} MB are live at once",
    ]
