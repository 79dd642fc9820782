"""imgconv profile: the figures of every launch, the trace, and the page, in a real browser where there is one."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from command_line import Command, in_folder
import numpy
import onnx
import pytest
from onnx.helper import make_node
from PIL import Image
from support import HANG_TIMEOUT, make_model

from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.commands import profile as profile_command
from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.errors import DeviceError
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.layout import ImageAlignment
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.reports.peaks import Peaks
from imgconv.reports.profile import Profile, html_page, percent
from imgconv.reports.trace import trace
from imgconv.runtime.measuring import Timeline
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing
from imgconv.tensor import Tensor, build_graph

HOSTILE = "</script><b>&\"'\\u2028 \u2028é"



@pytest.fixture
def imgconv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs one command line in an empty folder with tiny.onnx: exit status, stdout, stderr."""
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    return in_folder(tmp_path, capsys, monkeypatch)


def tiny_model() -> onnx.ModelProto:
    """A convolution, a depthwise one that is read twice, a residual sum and a mean; x is (1, 3, 20, 24)."""
    random = numpy.random.default_rng(1)
    first, second = (random.normal(size=shape).astype(numpy.float32) for shape in ((8, 3, 3, 3), (8, 1, 3, 3)))
    nodes = [
        make_node("Conv", ["x", "first"], ["a"], name="start", pads=[1] * 4),
        make_node("Relu", ["a"], ["b"], name=HOSTILE),
        make_node("Conv", ["b", "second"], ["c"], name="deep", pads=[1] * 4, group=8),
        make_node("Add", ["b", "c"], ["d"], name="sum"),
        make_node("GlobalAveragePool", ["d"], ["y"], name="mean"),
    ]
    x = {"x": numpy.zeros((1, 3, 20, 24), numpy.float32)}
    return make_model(nodes, x, ["y"], 13, {"first": first, "second": second})


def made_up(images_in_buffers: ImageAlignment | None = None) -> Profile:
    """Three runs of a small plan with known times: no device is needed. Launch n takes n + 1 ms, times 1, 2 and 4."""
    x = Tensor.input("x", (1, 4, 8, 8))
    weight = Tensor.constant(numpy.ones((4, 4, 3, 3), numpy.float32))
    y = x.conv2d(weight, padding=1).relu().conv2d(weight, padding=1).reduce("sum", (2, 3), True)
    target = Target(ImageLimits(64, 64, 1), "gpu", 2, images_in_buffers=images_in_buffers)
    plan = lower(run_passes(build_graph({"y": y}, [x])), Config(), target)
    count = len(plan.launches)

    def run(scale: float) -> Timeline:
        starts = [0.001 + scale * 0.01 * n for n in range(count)]
        launches = tuple((start, start + scale * 0.001 * (n + 1)) for n, start in enumerate(starts))
        end = launches[-1][1]
        return Timeline({"x": (0.0, 0.0005)}, launches, {"y": (end, end + 0.0005)})

    wall = Timing.from_seconds([0.1])
    return Profile(
        "model.onnx", DEVICE, Config(), plan, Peaks(operations=1e9, reads=1e8, bytes=1e7),
        (run(4), run(1), run(2)), wall,
    )


WORKSPACE = ImageAlignment(row=16, base=16, limit=1 << 28)
DEVICE = DeviceInfo(
    0, "platform", "device", "vendor", "gpu", "driver", "OpenCL 3.0", "OpenCL C 3.0", 64, 64, 1, 8, 8, 2, 64,
    (64, 64, 64), 1 << 15, 1 << 30, 1 << 28, True, True, False, False, (),
)


# Figures


def test_medians_shares_and_peaks() -> None:
    profile = made_up()
    count = len(profile.launches)
    assert count >= 4 and [each.launch for each in profile.launches] == list(profile.plan.launches)
    assert [each.seconds for each in profile.launches] == pytest.approx([0.002 * (n + 1) for n in range(count)])
    assert profile.median_run == profile.runs[2], "the run of median length, twice the fastest"
    assert profile.seconds == pytest.approx(0.002 * count * (count + 1) / 2)
    assert sum(each.share for each in profile.launches) == pytest.approx(1)
    for each in profile.launches:
        rate, moved = 2 * each.launch.multiply_adds / each.seconds, each.launch.moved_bytes / each.seconds
        assert each.of_peak == pytest.approx(max(rate / 1e9, moved / 1e7))
        assert each.bound == ("multiply-adds" if rate / 1e9 > moved / 1e7 else "bandwidth")
        assert (each.flops, each.bandwidth) == pytest.approx((rate, moved))
    convolutions = [each for each in profile.launches if each.launch.multiply_adds]
    assert [each.launch.multiply_adds for each in convolutions] == [8 * 8 * 4 * 4 * 9] * 2
    fast = replace(profile, peaks=Peaks(operations=1.0, reads=1.0, bytes=1e12))
    assert {each.bound for each in fast.launches if each.launch.multiply_adds} == {"multiply-adds"}
    (sums,) = (each for each in profile.totals_by_operation if each.operation == "convolution")
    assert sums.launches == 2 and sums.seconds == pytest.approx(sum(each.seconds for each in convolutions))
    assert sum(each.seconds for each in profile.totals_by_operation) == pytest.approx(profile.seconds)


def test_a_clock_that_stands_still_gives_zeros() -> None:
    profile = made_up()
    still = Timeline({}, tuple((0.0, 0.0) for _ in profile.plan.launches), {})
    content = replace(profile, runs=(still,)).to_json()
    assert content["totals"]["seconds"] == 0 == content["totals"]["of_peak"]
    assert {each["of_peak"] for each in content["launches"]} == {0.0}


def test_live_bytes_follow_from_the_lives_of_textures() -> None:
    profile = made_up()
    content = profile.to_json()
    for number, live in enumerate(profile.live_bytes):
        alive = [each for each in content["textures"] if each["first"] <= number <= each["last"]]
        assert live == sum(each["bytes"] for each in alive)
        named = {s["name"] for s in content["launches"][number]["reads"] if s["kind"] == "texture"}
        assert named <= {each["name"] for each in alive}, "what a launch reads is alive"
    assert content["totals"]["live_bytes"] == max(profile.live_bytes) <= profile.plan.activation_bytes


@pytest.mark.parametrize("images_in_buffers", [None, WORKSPACE], ids=["images", "workspace"])
def test_places_of_textures_do_not_overlap_while_they_live(images_in_buffers: ImageAlignment | None) -> None:
    profile = made_up(images_in_buffers)
    textures = profile.to_json()["textures"]
    assert bool(profile.plan.regions) == bool(images_in_buffers) and len(textures) >= 2
    assert {each["image"] is None for each in textures} == {bool(images_in_buffers)}
    for one in textures:
        assert one["bytes"] <= one["allocated"] and one["offset"] >= 0
        assert one["offset"] + one["allocated"] <= profile.plan.activation_bytes
        for other in textures:
            together = one["first"] <= other["last"] and other["first"] <= one["last"]
            if one is not other and together:
                low, high = sorted((one, other), key=lambda each: each["offset"])
                assert low["offset"] + low["allocated"] <= high["offset"]


# The trace


def check_trace(content: dict[str, Any]) -> None:
    """Chrome's trace event format: what each kind of event must have; on each track nothing overlaps."""
    tracks: dict[int, list[tuple[float, float]]] = {}
    for event in content["traceEvents"]:
        assert isinstance(event["name"], str) and event["ph"] in "XCM" and isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
        else:
            assert event["dur"] >= 0
            tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) == 2
    for spans_ in tracks.values():
        ordered = sorted(spans_)
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(ordered, ordered[1:], strict=False))


def test_trace() -> None:
    profile = made_up()
    content = json.loads(json.dumps(trace(profile)))
    check_trace(content)
    events = content["traceEvents"]
    launches = [event for event in events if event["ph"] == "X" and event["tid"] == 1]
    assert [event["name"] for event in launches] == [launch.name for launch in profile.plan.launches]
    assert launches[1]["ts"] == pytest.approx(21e3) and launches[1]["dur"] == pytest.approx(4e3), "microseconds"
    assert [event["name"] for event in events if event.get("tid") == 2 and event["ph"] == "X"] == [
        "upload x", "download y"
    ]
    counted = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert counted == [*profile.live_bytes, 0]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"launches", "uploads and downloads"} <= names


def test_parts_of_a_peak() -> None:
    assert [percent(part) for part in (0.52, 1.05, 3.0)] == ["52%", "105%", ">110%"]


# The page


class Reader(html.parser.HTMLParser):
    """Every reference to something outside, and the text of the data element."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.data = ""
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = ("id", "profile") in attrs
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "poster", "srcset") and value and value[:1] != "#":
                self.outside += [value] if value != "data:," else []

    def handle_data(self, data: str) -> None:
        self.data += data if self.inside else ""


def check_page(text: str) -> dict[str, Any]:
    """The page's data, once it is seen that it needs nothing from outside."""
    reader = Reader()
    reader.feed(text)
    assert reader.outside == [] and "b" not in reader.tags, "no name becomes an element"
    bare = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|url\(|\bfetch\(|XMLHttpRequest|import\(", bare)
    assert '<meta name="viewport" content="width=device-width' in text and "prefers-color-scheme: dark" in text
    content = json.loads(reader.data)
    assert isinstance(content, dict)
    return content


def test_page_holds_the_profile_and_nothing_from_outside() -> None:
    profile = replace(made_up(), model=HOSTILE)
    assert check_page(html_page(profile)) == json.loads(json.dumps(profile.to_json()))


@cache
def browser() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


PROBE = """<output id="probe" hidden></output><script>
const found = document.getElementById("probe").dataset;
const sizes = [...document.querySelectorAll("svg")].map((each) => each.getBoundingClientRect().width);
found.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
found.narrowest = Math.min(...sizes);
found.headline = document.querySelector("#headline").textContent;
found.named = document.querySelectorAll("#roofline svg text.named").length;
const bar = document.querySelector("#timeline rect"), place = bar.getBoundingClientRect();
bar.dispatchEvent(new PointerEvent("pointermove", { clientX: place.left + 1, clientY: place.top + 5, bubbles: true }));
found.tip = document.querySelector("#tip").textContent;
const firsts = () => [...document.querySelectorAll("#launches tbody td:first-child")];
const order = () => firsts().map((each) => each.textContent).join(" ");
found.first = order();
const sort = [...document.querySelectorAll("#launches th button")].find((each) => each.textContent === "time");
sort.click();
found.sorted = order();
</script></body>"""


@pytest.mark.parametrize(("width", "images_in_buffers"), [(390, None), (1280, WORKSPACE)], ids=["phone", "wide"])
def test_the_page_in_a_browser(tmp_path: Path, width: int, images_in_buffers: ImageAlignment | None) -> None:
    """Every chart is drawn without a click, nothing is wider than the page, and the console stays empty."""
    program = browser()
    if program is None:
        pytest.skip("no chromium here: the page is not tested in a browser")
    profile = replace(made_up(images_in_buffers), model=HOSTILE)
    inner, outer = tmp_path / "inner.html", tmp_path / "outer.html"
    inner.write_text(html_page(profile).replace("</body>", PROBE), encoding="utf-8")
    # A browser's own window cannot be as narrow as a phone's; a frame can.
    copied = "document.body.innerHTML = frame.contentDocument.documentElement.outerHTML"
    outer.write_text(
        f'<iframe id="frame" src="inner.html" style="width:{width}px;height:900px;border:0"></iframe>'
        f"<script>addEventListener('load', () => {{ {copied}; }})</script>"
    )
    result = subprocess.run(
        [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            "--virtual-time-budget=9000", "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'user'}",
            "--dump-dom", outer.as_uri(),
        ],
        capture_output=True, text=True, timeout=HANG_TIMEOUT, check=True,
    )
    assert not re.findall(r".*CONSOLE.*", result.stderr)
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', result.stdout))
    assert found["overflow"] == "0" and float(found["narrowest"]) > 0
    assert "median" in found["tip"] and "of peak" in found["tip"]
    count = len(profile.launches)
    assert found["first"].split() == [str(n) for n in reversed(range(count))], "later launches take longer here"
    assert found["sorted"].split() == [str(n) for n in range(count)], "the heading turns the order round"
    assert "100 ms a run, 10 frames a second" in found["headline"] and found["named"] == "2"
    for chart in ("time by kind of work", "timeline", "roofline", "bandwidth", "textures over time"):
        (drawn,) = re.findall(rf'<svg[^>]*aria-label="{chart}"[^>]*>(.*?)</svg>', result.stdout, re.DOTALL)
        assert drawn.count("<rect") + drawn.count("<circle") >= 1, chart
        assert "NaN" not in drawn and "undefined" not in drawn and "Infinity" not in drawn, chart
    assert len(re.findall(r'class="box" id="launch-\d+"', result.stdout)) == count
    assert "NaN" not in re.sub(r'<script.*?</script>', "", result.stdout, flags=re.DOTALL)


# The device's clock


def test_spans_follow_one_another_and_durations_are_their_lengths(device: DeviceInfo) -> None:
    context = open_device(device, profile=True)
    buffer = context.buffer(1 << 20)
    events = [context.upload(buffer, numpy.zeros(1 << 18, numpy.float32)) for _ in range(3)]
    found = context.spans(events)
    assert found[0][0] == 0 and all(start < end for start, end in found)
    assert all(a[1] <= b[0] for a, b in zip(found, found[1:], strict=False))
    assert context.durations(events) == pytest.approx([end - start for start, end in found])


def test_a_timeline_needs_events(context: Context) -> None:
    graph = build_graph({"y": Tensor.input("x", (1, 4, 3, 3)).relu()})
    session = Session(lower(run_passes(graph), Config(), Target(ImageLimits(64, 64, 1), "cpu", 2)), context)
    with pytest.raises(DeviceError, match="without profile=True"):
        session.timeline({"x": numpy.zeros((1, 4, 3, 3), numpy.float32)})


# The command


def test_profile_of_a_model(imgconv: Command, device: DeviceInfo) -> None:
    command = ("profile", "tiny.onnx", "--device", device.index, "--repeat", 3)
    status, out, err = imgconv(*command, "--json", "--trace", "trace.json", "--html", "page.html")
    assert status == 0, err
    content, totals = json.loads(out), json.loads(out)["totals"]
    launches = content["launches"]
    assert totals["launches"] == len(launches) and content["runs"] == 3
    assert totals["seconds"] == pytest.approx(sum(each["seconds"] for each in launches))
    assert sum(each["share"] for each in launches) == pytest.approx(1)
    assert totals["seconds"] == pytest.approx(sum(each["seconds"] for each in content["operations"]))
    assert totals["multiply_adds"] == 20 * 24 * 8 * (27 + 9) == sum(each["multiply_adds"] for each in launches)
    assert totals["bytes"] == sum(each["bytes"] for each in launches)
    assert {"convolution", "depthwise convolution", "reduction"} <= {each["operation"] for each in launches}
    (deep,) = (each for each in launches if each["operation"] == "depthwise convolution")
    (mean,) = (each for each in launches if each["operation"] == "reduction")
    assert (sorted(deep["nodes"]), mean["nodes"]) == (["deep", "sum"], ["mean"])
    peaks = content["peaks"]
    for each in launches:
        assert each["seconds"] > 0 and each["start"] < each["end"]
        rate, moved = 2 * each["multiply_adds"] / each["seconds"], each["bytes"] / each["seconds"]
        assert each["of_peak"] == pytest.approx(max(rate / peaks["flops"], moved / peaks["copy_bytes_per_second"]))
    assert all(a["end"] <= b["start"] for a, b in zip(launches, launches[1:], strict=False))
    assert content["uploads"][0]["end"] <= launches[0]["start"]
    assert launches[-1]["end"] <= content["downloads"][0]["start"]
    check_trace(json.loads(Path("trace.json").read_text(encoding="utf-8")))
    assert check_page(Path("page.html").read_text(encoding="utf-8")) == content
    assert {path.name for path in Path().iterdir()} == {"tiny.onnx", "trace.json", "page.html"}


def test_profile_of_a_picture_as_text(imgconv: Command, device: DeviceInfo) -> None:
    Image.new("RGB", (40, 30), (10, 20, 30)).save("a.png")
    status, out, err = imgconv("profile", "tiny.onnx", "a.png", "--device", device.index, "--repeat", 1)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("tiny.onnx on [") and lines[0].endswith("median of 1 run")
    (start,) = (line for line in lines if "start, </script>" in line)
    assert "convolution" in start and "%" in start and re.search(r"  (multiply-adds|bandwidth)  ", start)
    (total,) = (line for line in lines if "launches take" in line)
    seconds = [float(match[1]) for line in lines if (match := re.search(r"\s([\d.]+) +[\d.]+% +>?\d+%  ", line))]
    if re.search(r"  us  ", out):  # if all launches take less than a millisecond
        seconds = [each / 1e3 for each in seconds]
    assert sum(seconds) == pytest.approx(float(re.search(r"take ([\d.]+) ms", total)[1]), abs=1e-3 * len(seconds))  # type: ignore[index]
    assert any(line.startswith("peaks measured: ") for line in lines)


# What goes wrong


def test_files_that_cannot_be_written(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_command, "measure", lambda *_: made_up())
    command = ("profile", "tiny.onnx", "--device", device.index)
    for option in ("--trace", "--html"):
        status, out, err = imgconv(*command, option, "nowhere/file")
        assert (status, out) == (1, "") and "there is no folder 'nowhere'" in err and err.count("\n") == 1
    Path("taken").mkdir()
    status, out, err = imgconv(*command, "--html", "taken")
    assert status == 1 and "cannot write 'taken'" in err and "launches take" in out, "what was measured is shown"
    monkeypatch.setattr(profile_command, "html_page", lambda profile: 1 / 0)
    status, _, err = imgconv(*command, "--html", "page.html")
    assert status == 1 and "ZeroDivisionError" in err
    assert {path.name for path in Path().iterdir()} == {"tiny.onnx", "taken"} and not list(Path("taken").iterdir())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("nothing.onnx",), 1, "nothing.onnx"),
        (("tiny.onnx", "nothing.png"), 1, "nothing.png"),
        (("tiny.onnx", "--repeat", "0"), 2, "'0' is not an integer of at least 1"),
        (("open.onnx",), 1, "--shape x=1,3,224,224"),
    ],
)
def test_wrong_arguments(imgconv: Command, arguments: tuple[str, ...], status: int, message: str) -> None:
    model = tiny_model()
    for dimension, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], "hw", strict=True):
        dimension.dim_param = name
    onnx.save(model, "open.onnx")
    found, out, err = imgconv("profile", *arguments)
    assert (found, out) == (status, "") and message in err
