"""imgconv check: compare each launch of a model, or each kernel variant, with float64 on this device."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from imgconv.checking.comparing import LaunchVerdict
from imgconv.checking.kernel_variants import all_variants_graph, frame_graph, variant_graphs
from imgconv.checking.frame_checks import check_frames, frame_launch
from imgconv.checking.session_checks import SessionUnderTest, check_session
from imgconv.checking.shrinking import shrink_failing_node
from imgconv.cl.building.crashes import retry_wrong_kernels
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.commands.shared_arguments import (
    FLOAT16_HELP, SHAPE_HELP, add_device_argument, add_target_argument, parse_name_and_value, read_shapes,
)
from imgconv.commands.command_line_inputs import declared_of
from imgconv.compiling.shared_packings import Packings
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Precision, read_config
from imgconv.errors import ConfigError, DeviceError, Error
from imgconv.graph.nodes import Graph
from imgconv.files.disk import check_folder, atomic_write
from imgconv.loading.file_plans import plans_for, with_generic
from imgconv.loading.plans import prepare_for
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.native_functions import native_functions_fit
from imgconv.model import checked, checked_frames, load
from imgconv.passes import run_passes
from imgconv.preprocessing.preparation import FORMATS, Format
from imgconv.reports import terminal
from imgconv.reports.table import Column, print_table
from imgconv.runtime.device import Device
from imgconv.runtime.session import Session
from imgconv.stored.compiled_file import SizedModel, save_sizes
from imgconv.version import VERSION

DESCRIPTION = """\
Run a model launch by launch on random inputs, and compare the result of each launch with a float64 reference at 12 to
512 positions. The verdict is right, wrong, or not covered. If a launch is wrong, the exit status is 1; --report FILE
writes a report to send to us. Checking a compiled file requires neither onnx nor onnxruntime.

Without a model, check every kernel variant at small sizes for at most a minute: in fp32, then with FLOAT16=1 and 2 if
the device supports them. --save writes these kernels, in fp32, to a file instead. imgconv-run FILE --check then checks
them on a device without Python."""

SECONDS = 60.0
VERDICTS = ("right", "wrong", "not covered")
LAUNCHES = (
    Column("#"), Column("launch", text=True), Column("kernel", 2, text=True), Column("verdict"), Column("samples", 3),
    Column("why", 1, text=True),
)
VARIANT_COLUMNS = (
    Column("kernel variant", text=True), Column("FLOAT16"), Column("verdict"), Column("why", 1, text=True)
)


@dataclass(frozen=True)
class CheckedPlan:
    """The verdicts on a plan's launches. about: the model, or the kernel variant. graph: after the passes."""

    about: str
    graph: Graph
    config: Config
    findings: dict[int, LaunchVerdict]
    plan: Plan
    load_seconds: float
    check_seconds: float

    @property
    def wrong_launches(self) -> dict[int, LaunchVerdict]:
        """The launches that are wrong, by number."""
        return {number: found for number, found in self.findings.items() if found.verdict == "wrong"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help="an ONNX or compiled file")
    parser.add_argument(
        "--shape", metavar="NAME=SIZES", type=parse_name_and_value, action="append", default=[], help=SHAPE_HELP
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write every kernel variant to a file for imgconv-run FILE --check"
    )
    add_target_argument(parser)
    add_device_argument(parser)
    parser.add_argument("--float16", action=argparse.BooleanOptionalAction, help=FLOAT16_HELP)
    parser.add_argument("--report", metavar="FILE", help="write a report of the faulty kernels to send to us")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> None:
    """Prints the verdicts. Raises DeviceError if a launch is wrong, and what imgconv.load raises."""
    check_folder(options.report, options.save)
    if options.save or options.target:
        save_variants(options)
        return
    about = f"reading {options.model}" if options.model else "building kernels"
    with terminal.ProgressSpinner(about) as progress, retry_wrong_kernels():
        if options.model:
            info, plans, left = *_check_model(options, progress), 0
        else:
            config = read_config(options.float16, None, None, options.device)
            info = select_device(config.device)
            plans, left = check_variants(info, open_device(info), progress)
    if options.json:
        terminal.print_json(as_json(info, plans, left))
    elif options.model:
        for each in plans:
            print_launches(info, each)
    else:
        print_variants(info, plans, left)
    wrong = sum(len(each.wrong_launches) for each in plans)
    if options.report:
        smaller = [each for plan in plans if options.model for each in smallest_wrong_graphs(info, plan)]
        with atomic_write(options.report) as file:
            file.write(bug_report(info, [*plans, *smaller]).encode())
    if wrong:
        advice = f"{options.report} has" if options.report else "--report FILE writes"
        said = f"{info.name}, driver {info.driver_version}: {wrong} launches are wrong"
        raise DeviceError(f"{said}; {advice} the report to send to us")


def save_variants(options: argparse.Namespace) -> None:
    """Writes every kernel variant as a compiled file for --target, by default for any device. Raises ConfigError."""
    if options.model or not options.save:
        raise ConfigError("--save and --target write a file of all kernel variants: give --save FILE, and no MODEL")
    devices = [read_device_description(each) for each in options.target] or [read_device_description("generic")]
    with terminal.ProgressSpinner("planning every kernel variant"):
        graph, packings = run_passes(all_variants_graph()), Packings()
        plans = plans_for(graph, Config(), devices, None, {}, packings)
        sized = SizedModel(graph, Config(), with_generic(plans, graph, Config(), {}, packings))
        save_sizes(options.save, [sized], "", None)
    print(f"{options.save}: {len(plans[0].plan.launches)} launches; imgconv-run {options.save} --check checks them")


def _check_model(
    options: argparse.Namespace, progress: terminal.ProgressSpinner
) -> tuple[DeviceInfo, list[CheckedPlan]]:
    """Loads the model and checks its launches."""
    shapes = read_shapes(options.shape, declared_of(options.model)) if options.shape else {}
    begun = time.perf_counter()
    model = load(options.model, options.device, options.float16, shapes=shapes, progress=progress, check=False)
    loaded = time.perf_counter()
    findings = checked(model)
    seconds = loaded - begun, time.perf_counter() - loaded
    name = Path(options.model).name
    made, frames = CheckedPlan(name, model.graph, model.config, findings, model.plan, *seconds), checked_frames(model)
    if frames is None:
        return model.device, [made]
    launch, found = frames
    return model.device, [made, replace(made, findings={0: found}, plan=replace(made.plan, launches=(launch,)))]


def check_variants(
    info: DeviceInfo, context: Device, progress: terminal.ProgressSpinner
) -> tuple[list[CheckedPlan], int]:
    """Checks every kernel variant that the device takes until the time is over; and the number that is left."""
    configs = [Config()]
    configs += [Config(float16=1)] if info.half_images else []
    configs += [Config(float16=2)] if info.half_images and info.fp16_arithmetic else []
    wanted = [
        (graph.name, partial(_plan_and_check, info, context, graph, config))
        for config in configs for graph in variant_graphs()
    ]
    wanted += [(f"frames of {format}", partial(_checked_frames, info, context, format)) for format in FORMATS]
    end = time.perf_counter() + SECONDS
    made: list[CheckedPlan] = []
    for number, (about, check) in enumerate(wanted):
        if time.perf_counter() > end:
            return made, len(wanted) - number
        progress(number, len(wanted), about)
        made.append(check())
    return made, 0


def _checked_frames(info: DeviceInfo, context: Device, format: Format) -> CheckedPlan:
    """Checks the kernel that reads frames of a format, which is in no plan."""
    begun, graph = time.perf_counter(), frame_graph(format)
    session = Session(prepare_for(info, graph, Config()).plan(), context)
    loaded, launch = time.perf_counter(), frame_launch(session, format)
    found = check_frames(session, format)
    seconds = loaded - begun, time.perf_counter() - loaded
    return CheckedPlan(launch.name, graph, Config(), {0: found}, replace(session.plan, launches=(launch,)), *seconds)


def _plan_and_check(info: DeviceInfo, context: Device, graph: Graph, config: Config) -> CheckedPlan:
    """Plans a graph and checks its launches."""
    begun = time.perf_counter()
    prepared = prepare_for(info, graph, config, native_functions=native_functions_fit(context, config))
    session = Session(prepared.plan(), context)
    loaded = time.perf_counter()
    findings = check_session(SessionUnderTest(session, prepared.graph, config))
    seconds = loaded - begun, time.perf_counter() - loaded
    return CheckedPlan(graph.name, prepared.graph, config, findings, session.plan, *seconds)


def smallest_wrong_graphs(info: DeviceInfo, model: CheckedPlan) -> Iterator[CheckedPlan]:
    """The smallest graph of one node that is wrong too, for each file of wrong kernels that has any."""
    config, context, done = replace(model.config, precision=Precision()), open_device(info), set[str]()

    def failure(graph: Graph) -> CheckedPlan | None:
        try:
            made = _plan_and_check(info, context, graph, config)
        except Error:
            return None
        return made if made.wrong_launches else None

    for number in sorted(model.wrong_launches, key=lambda n: _work_items(model.plan, n)):
        launch = model.plan.launches[number]
        nodes = [model.graph.producers[name] for name in launch.values if name in model.graph.producers]
        if launch.source.path not in done:
            found = filter(None, (shrink_failing_node(node, model.graph, failure) for node in nodes))
            if (made := next(found, None)) is not None:
                done.add(launch.source.path)
                yield made


def as_json(info: DeviceInfo, plans: Sequence[CheckedPlan], left: int) -> dict[str, Any]:
    """Everything that is printed, as plain data."""
    checked_plans = [
        {"about": each.about, "float16": each.config.float16, "load_seconds": each.load_seconds,
         "check_seconds": each.check_seconds,
         "launches": [{"number": number, **asdict(found)} for number, found in each.findings.items()]}
        for each in plans
    ]
    return {
        "device": info.name, "platform": info.platform, "driver": info.driver_version,
        "opencl_c": info.opencl_c_version, "wrong": sum(len(each.wrong_launches) for each in plans), "not_tried": left,
        "plans": checked_plans,
    }


def print_launches(info: DeviceInfo, made: CheckedPlan) -> None:
    """Prints a model's launches with their verdicts."""
    console = terminal.console()
    console.print(f"{made.about} on {info}, FLOAT16={made.config.float16}", style="bold")
    rows = [
        (str(number), found.launch, found.kernel, found.verdict, str(found.samples), found.text)
        for number, found in made.findings.items()
    ]
    print_table(console, LAUNCHES, rows, styles=[_style(found) for found in made.findings.values()])
    counts = {verdict: sum(f.verdict == verdict for f in made.findings.values()) for verdict in VERDICTS}
    parts = len(made.plan.launches) - len(made.findings)
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), style="bold")
    if parts:
        console.print(f"{parts} more do part of a layer's work, and are checked through the launch that reads them")


def _style(found: LaunchVerdict) -> str | None:
    return {"wrong": "red", "not covered": "dim"}.get(found.verdict)


def print_variants(info: DeviceInfo, plans: Sequence[CheckedPlan], left: int) -> None:
    """Prints the kernel variants with their verdicts: a line for each, and what the driver can be trusted with."""
    console = terminal.console()
    console.print(f"kernels at small sizes on {info}", style="bold")
    rows, styles = [], []
    for each in plans:
        worst = min(each.findings.values(), key=lambda f: ("wrong", "not covered", "right").index(f.verdict))
        rows.append((each.about, str(each.config.float16), worst.verdict, worst.text))
        styles.append(_style(worst))
    print_table(console, VARIANT_COLUMNS, rows, styles=styles)
    right = sum(not each.wrong_launches for each in plans)
    console.print(f"this driver computes {right} of {len(plans)} kernel variants correctly", style="bold")
    if left:
        console.print(f"{left} were not checked, because the time limit of {SECONDS:g} s was reached")


def bug_report(info: DeviceInfo, plans: Iterable[CheckedPlan]) -> str:
    """A text for a bug report: device, driver, compiler, and the wrong launches with their kernels' source."""
    lines = [
        f"imgconv {VERSION}", f"device: {info.name}", f"platform: {info.platform}", f"driver: {info.driver_version}",
        f"OpenCL C: {info.opencl_c_version}", *(f"instruction set: {text}" for text in [info.instruction_set] if text),
    ]
    found = [(each, number, wrong) for each in plans for number, wrong in each.wrong_launches.items()]
    lines.append(f"wrong launches: {len(found)}")
    for each, number, wrong in sorted(found, key=lambda entry: _work_items(entry[0].plan, entry[1])):
        lines += _launch_report(each, number, wrong)
    return "\n".join(lines) + "\n"


def _work_items(plan: Plan, number: int) -> int:
    """The work items of a launch: the smallest failing sizes come first."""
    return prod(plan.launches[number].source.global_size)


def _launch_report(each: CheckedPlan, number: int, wrong: LaunchVerdict) -> Iterator[str]:
    launch = each.plan.launches[number]
    yield ""
    yield f"{each.about}, FLOAT16={each.config.float16}, launch {number} {launch.name!r}: {launch.description}"
    yield f"kernel: {wrong.kernel}, global size {launch.source.global_size}, local size {launch.source.local_size}"
    yield f"found: {wrong.text}" + ("; the result of a second launch was right" if wrong.again else "")
    if launch.choice is not None:
        yield f"sizes: {launch.choice.problem}"
    for argument in launch.source.arguments:
        yield f"argument {argument.name}: {argument.storage}"
    yield launch.source.text
