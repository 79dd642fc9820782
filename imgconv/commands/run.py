"""imgconv run: run a model on pictures, videos, cameras or arrays, and print the results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from imgconv.commands.shared_arguments import add_model_arguments, add_picture_arguments, add_precision_argument, count
from imgconv.commands.shared_arguments import add_strict_argument, number, positive
from imgconv.commands.dispatch import devices_of, dispatch
from imgconv.commands.command_line_inputs import check_complete, parse_inputs
from imgconv.commands.journal import Journal
from imgconv.commands.picture_loader import available_cores, run_pictures, worker_count
from imgconv.commands.picture_result import DeviceSummary, PrintableResult, is_folder
from imgconv.commands.runner import PictureItem, PictureProcessor, RunArguments, first_picture_size, items_of
from imgconv.errors import InputError
from imgconv.files.disk import check_folder, atomic_write
from imgconv.preprocessing.preparation import Size
from imgconv.pictures.sources import count_pictures, expand_paths
from imgconv.pictures.video import check_writable, is_video_file
from imgconv.reports import terminal
from imgconv.reports.counting import PictureProgress, summary
from imgconv.tasks import HEADS, TASKS, Description, coco_json, read_labels

DESCRIPTION = """\
Run a model on each picture and print the result: classes, boxes, masks, keypoints, text, depth or an image.

PICTURE is a file, a folder, a pattern such as 'photos/*.jpg', a video, a camera such as /dev/video0, an address such as
rtsp://host/stream, or - for a picture on standard input. Videos and cameras need PyAV: pip install 'imgconv[video]'.

Each picture is resized to the model's input size. Each pixel, from 0 to 255, then becomes
x = (pixel * scale - mean) / std. If the input size is dynamic, the first picture sets it, and later pictures are
letterboxed; --shape sets another size.

imgconv infers the task from the output shapes if they are unambiguous. Otherwise pass --task and --head, or write a
JSON file with the model's name and the suffix .task.json, such as {"task": "detect", "head": "yolox", "labels":
"labels.txt", "preparation": {"resize": "letterbox"}}. The heads of each task are:
""" + "\n".join(
    f"  {task}: " + ", ".join(name for name, head in HEADS.items() if head.task == task) for task in TASKS
) + """

If the output is an image, a picture whose size differs from the network's is processed in overlapping tiles, unless
--resize is given. The values of an output image range from 0 (black) to 255 (white) if they are uint8, or if their
maximum is above 4; otherwise from 0 to 1. With --order y the network processes only the luma, and the picture's colors
are enlarged with bicubic interpolation.

With several pictures, --output out.png writes out-1.png, out-2.png ..., and --output boxes/ uses the pictures' names;
video frames are numbered from 000000. If a picture cannot be read, an error message names it, the run continues with
the other pictures, and the exit status is 1."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_precision_argument(parser)
    add_strict_argument(parser)
    parser.add_argument("pictures", metavar="PICTURE", nargs="*", help="a picture, folder, pattern, video, camera or -")
    add_picture_arguments(parser)
    parser.add_argument(
        "--devices", metavar="all|0,1",
        help="use several devices at once, with one process each; results are in order of completion"
    )
    parser.add_argument(
        "--every", type=positive, default=1, metavar="N",
        help="process every Nth frame of videos and cameras (default: 1)"
    )
    parser.add_argument(
        "--tile", type=count, nargs="?", const=-1, metavar="OVERLAP",
        help="process the picture in tiles of the model's input size that overlap by this many pixels "
        "(default: an eighth of the tile's side, at least 32)",
    )
    meaning = parser.add_argument_group("meaning of the outputs")
    meaning.add_argument(
        "--task", choices=TASKS, help="the purpose of the model (default: inferred from the output shapes)"
    )
    meaning.add_argument("--head", choices=HEADS, metavar="HEAD", help="the layout of the outputs; see the list above")
    meaning.add_argument("--labels", metavar="FILE", help="class names, one per line")
    meaning.add_argument("--top", type=count, metavar="N", help="number of classes to print (default: 5)")
    meaning.add_argument("--score", type=number, metavar="SCORE", help="minimum score of a detection")
    meaning.add_argument(
        "--overlap", "--iou", type=number, metavar="PART", help="maximum intersection over union of two detections"
    )
    meaning.add_argument(
        "--recognizer", metavar="MODEL",
        help="a model that reads the text lines found with --task text, such as PP-OCR's"
    )
    after = parser.add_argument_group("results")
    after.add_argument(
        "--output", metavar="FILE.png",
        help="write the drawing or the output image to this file; FILE.mp4: write one video of all drawings"
    )
    after.add_argument("--save", metavar="FILE.npz", help="write the arrays of all outputs to this file")
    after.add_argument(
        "--jsonl", metavar="FILE",
        help="append a line of JSON for each finished picture; skip pictures that already have a line"
    )
    after.add_argument("--coco", metavar="FILE", help="write the detections of all pictures as COCO JSON")


@dataclass
class RunState:
    """The results so far. results: of all pictures, if they are wanted at the end; failed: those without an answer.

    Results are kept only if they are needed: a camera has no last picture.
    """

    journal: Journal | None
    keeps: bool
    count: int = 0
    results: list[Mapping[str, Any]] = field(default_factory=list)
    failed: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, result: PrintableResult) -> None:
        """Adds a picture's result; the journal gets a line of it. Raises InputError."""
        self.count += 1
        if self.keeps:
            self.results.append(result.result)
        if result.error:
            self.failed.append(result.result)
        if self.journal:
            self.journal.add(result.text)


def execute(options: argparse.Namespace) -> None:
    """Runs the model and prints the results. Raises what imgconv.load and Model.run raise, and InputError."""
    line = read_command_line(options)
    with ExitStack() as stack:
        journal = Journal(options.jsonl, options.model) if options.jsonl else None
        if journal:
            stack.callback(journal.close)
        earlier = journal.lines if journal else []
        done = {str(each["picture"]) for each in earlier}
        size, items = first_picture_size(item for item in items_of(line) if item.name not in done)
        total = count_pictures(line.paths)
        left = total - len(done.intersection(line.paths)) if total is not None else None
        state = RunState(journal, keeps=bool(options.json or options.coco))
        if left == 0 and line.paths:
            print(f"all {total} pictures are in {options.jsonl!r}", file=sys.stderr)
        else:
            run_all(line, size, items, left, state)
    if options.coco:
        with atomic_write(options.coco) as file:
            file.write(json.dumps(coco_json([*earlier, *state.results])).encode())
    failed = [each for each in earlier if "error" in each] + state.failed
    if failed and total == 1:
        raise InputError(failed[0]["error"])
    if failed:
        of, first = len(earlier) + state.count, failed[0]["picture"]
        raise InputError(f"{len(failed)} of {of} pictures cannot be read; the first is {first!r}")


def read_command_line(options: argparse.Namespace) -> RunArguments:
    """Reads all small inputs, so that mistakes are found before compiling. Raises ModelError, InputError."""
    check_folder(options.output, options.save, options.jsonl, options.coco)
    if options.devices and (options.device or not options.pictures):
        raise InputError("--devices distributes pictures: " + ("leave out --device" if options.device else "give some"))
    if options.output and is_video_file(options.output):
        check_writable(options.output)
        if options.devices:
            raise InputError("with --devices, results are not in the order of the video: leave --devices out")
    options.pictures = expand_paths(options.pictures)
    given = parse_inputs(options)
    check_complete(options, given)
    line = RunArguments.from_options(options, given, merged_description(options, given.description))
    for path in (options.output, options.save):
        if path and is_folder(path):
            make_folder(path)
    return line


def make_folder(path: str) -> None:
    """Makes a folder unless it is there. Raises InputError."""
    try:
        Path(path).mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path!r}: {error.strerror or error}") from error


def merged_description(options: argparse.Namespace, stored: Description) -> Description:
    """Returns the description of the command line, else the model's stored one. Raises InputError."""
    found = stored
    if options.task or options.head:
        same = found.task in ("", options.task or found.task) and not options.head
        found = replace(found, task=options.task or "", head=options.head or (found.head if same else ""))
    if options.labels:
        found = replace(found, labels=read_labels(options.labels))
    asked = {name: getattr(options, name) for name in ("top", "score", "overlap")}
    return replace(found, **{name: value for name, value in asked.items() if value is not None})


def run_all(
    line: RunArguments, size: Size | None, items: Iterator[PictureItem], total: int | None, state: RunState
) -> None:
    """Runs every item and reports each result as it comes. Loads the model if a picture can be read.

    size: of the first picture that can be read; total: how many items there are, if that is known.
    """
    options, several = line.options, total != 1
    if size is None and line.paths:
        reader = PictureProcessor(line, None, line.given.preparation)
        for item in items:
            sample, _ = reader.prepare(item)
            print_result(PrintableResult.from_result(reader.finish(sample, []), False), several, state)
        return
    heads: list[DeviceSummary] = []
    workers = 0 if options.output and is_video_file(options.output) else worker_count(total, available_cores())
    with ExitStack() as stack:
        with terminal.ProgressSpinner(f"reading {options.model}") as progress:
            if options.devices:
                messages = dispatch(line, size, items, total, devices_of(options.devices))
            else:
                messages = run_pictures(line, size, items, workers, lambda *stage: progress(*stage))
            stack.enter_context(closing(messages))
            first, start = next(messages), time.monotonic()
        counting = stack.enter_context(PictureProgress(total)) if several else None
        for message in chain([first], messages):
            if isinstance(message, DeviceSummary):
                print_device_summary(line, message, is_first=not heads)
                heads.append(message)
                continue
            print_result(message, several, state)
            if counting:
                counting.step()
    if counting and len(heads) > 0:
        seconds = sum(head.seconds for head in heads) / len(heads) ** 2
        if line.writes_video and not options.json:
            terminal.say(f"written to {options.output}")
        print("imgconv: " + summary(state.count, time.monotonic() - start, seconds), file=sys.stderr)
    if options.json:
        devices = [{"device": head.device, "seconds": head.seconds} for head in heads]
        about = {"devices": devices} if options.devices else devices[0]
        preparation = heads[0].preparation or None
        terminal.print_json(
            {"model": options.model, **about, "preparation": preparation, "results": state.results}
        )


def print_device_summary(line: RunArguments, head: DeviceSummary, is_first: bool) -> None:
    """Prints the time of a run; once, how pictures are prepared, and the options to give if the task is unknown."""
    if is_first and len(line.paths) > 1 and line.given.target and line.given.target.is_open:
        size, name = "x".join(map(str, head.size)), line.given.target.name
        what = f"the input size is dynamic; all pictures are resized to {size}, the size of the first picture"
        print(f"imgconv: {what}; --shape {name}=1,3,HEIGHT,WIDTH chooses another", file=sys.stderr)
    if not line.options.json:
        terminal.say(f"{line.options.model}: {head.seconds * 1e3:.1f} ms a run on {head.name}", style="bold")
        if is_first and line.paths and head.preparation:
            terminal.say(f"pictures: {head.preparation}")
    if is_first and line.paths and head.possible_tasks:
        also = " and --head, see imgconv run --help" if "detect" in head.possible_tasks else ""
        what = f"give --task {'|'.join(head.possible_tasks)}{also}"
        print(f"imgconv: the output shapes do not show the task: {what}", file=sys.stderr)


def print_result(result: PrintableResult, several: bool, state: RunState) -> None:
    """Prints a picture's result, unless all are printed as JSON, and adds it to the state."""
    if result.error and several:
        print(f"imgconv: {result.error}", file=sys.stderr)
    terminal.print_styled_lines(result.lines)
    state.add(result)
