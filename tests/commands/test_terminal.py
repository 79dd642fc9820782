"""Output in a terminal: tables as wide as it is, suggestions for wrong words, completion."""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

from command_line import Command, write_classifier, write_convolution, write_model, write_picture
import numpy
import onnx
import pytest
from onnx.helper import make_node
from rich.cells import cell_len
from rich.console import Console
from support import HANG_TIMEOUT

import imgconv as package
from imgconv.cl.device import DeviceInfo
from imgconv.commands import profile
from imgconv.commands.devices import describe
from imgconv.reports import terminal
from imgconv.reports.counting import PictureProgress
from imgconv.reports.table import Column, fitting_columns, print_table
from imgconv.tensor import Tensor

COLUMNS = (Column("name", text=True), Column("ms"), Column("share", 1), Column("origin", 2, text=True))
ROWS = [("a" * 30, "12.345", "99%", "b" * 100), ("c", "0.1", "1%", "")]


def width_of(shown: dict[int, int]) -> int:
    return sum(shown.values()) + 2 * (len(shown) - 1)


@pytest.mark.parametrize("width", [200, 80, 45, 30, 20])
def test_columns_fit_and_go_by_importance(width: int) -> None:
    shown = fitting_columns(COLUMNS, ROWS, width)
    assert width_of(shown) <= width and {0, 1} <= shown.keys() and shown[1] == 6
    assert [n in shown for n in (2, 3)] == [width >= 31, width >= 60], "18 characters of each text are worth a column"


def test_nothing_is_cut_without_need_and_empty_columns_go() -> None:
    assert fitting_columns(COLUMNS, ROWS, 1000) == {0: 30, 1: 6, 2: 5, 3: 100}
    assert fitting_columns(COLUMNS, [("a", "1", "", "")], 1000) == {0: 4, 1: 2}
    assert fitting_columns([Column("name", text=True), Column("ms")], [("a long name", "0.5")], 14) == {0: 9, 1: 3}


def write_chain(launches: int) -> None:
    """Matrix products of a long chain, each a launch of its own, with long names."""
    nodes, read = [], "x"
    for n in range(launches):
        made = "y" if n == launches - 1 else f"backbone/stage{n}/block/expand/convolution_output"
        nodes.append(make_node("Conv", [read, "w"], [made], name=f"node{n}", pads=[1] * 4))
        read = made
    write_model("chain.onnx", nodes, {"x": [1, 3, 8, 8]}, {"w": numpy.full((3, 3, 3, 3), 0.03, numpy.float32)})


@pytest.mark.parametrize("width", [80, 45])
def test_every_table_is_as_wide_as_the_terminal(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(terminal, "console", lambda: Console(markup=False, highlight=False, emoji=False, width=width))
    write_chain(14)
    for words in (("inspect",), ("profile", "--repeat", 2), ("verify",), ("tune", "--budget", "0.2")):
        status, out, err = imgconv(words[0], "chain.onnx", *words[1:], "--device", device.index)
        assert status == 0, err
        lines = out.splitlines()
        assert max(map(cell_len, lines)) <= width
        assert sum(bool(re.match(r" *\d+  ", line)) for line in lines) <= 16, "a row is a line"
        assert len(lines) < 50 and ": --all" in out, words


def test_tables_in_a_file_have_an_end(imgconv: Command, device: DeviceInfo) -> None:
    """Also tune's, whose problems take 400 characters; no line ends in blanks."""
    write_chain(14)
    for command, shown in (("inspect", "block"), ("tune", "GFLOP/s")):
        _, out, _ = imgconv(command, "chain.onnx", "--device", device.index, *["--budget", 0.2] * (command == "tune"))
        lines = out.splitlines()
        assert max(map(cell_len, lines)) <= 200 and shown in out and lines == [line.rstrip() for line in lines]


def test_everything_in_a_narrow_terminal_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    """A table would break words into columns of a few letters."""
    for width, lines in ((200, 2 + 2), (45, 2 + 3 + 2 + 3)):
        print_table(Console(width=width), COLUMNS, [(*row[:3], "two words " * 6) for row in ROWS], everything=True)
        out = capsys.readouterr().out
        assert len(out.splitlines()) >= lines and max(map(cell_len, out.splitlines())) <= width
        assert ("  origin: two words two words two words two\n      words two words" in out) is (width == 45)


def test_a_text_that_wraps_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = "differs from onnxruntime by 0.03 in float"
    print_table(Console(width=24), [Column("y"), Column("verdict", text=True, wraps=True)], [("1", verdict)])
    assert " ".join(capsys.readouterr().out.split()[3:]) == f"1 {verdict}"


@pytest.mark.parametrize("width", [80, 45])
def test_devices_are_as_wide_as_the_terminal(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(terminal, "console", lambda: Console(markup=False, highlight=False, emoji=False, width=width))
    lines = imgconv("devices")[1].splitlines()
    assert max(map(cell_len, lines)) <= width
    names = [line[6:24].rstrip() for line in lines[: lines.index("drivers")] if not line.startswith(" " * 25)]
    expected = [name for name, _ in describe(device)]
    first = names.index(expected[0])  # a long name of a device takes two lines
    assert names[first : first + len(expected)] == expected


def test_profile_shows_the_slowest_first_and_all_when_asked(imgconv: Command, device: DeviceInfo) -> None:
    write_chain(14)
    command = ("profile", "chain.onnx", "--repeat", 2, "--device", device.index)
    _, out, _ = imgconv(*command)
    rows = [line.split() for line in out.splitlines() if re.match(r" *\d+  ", line)]
    assert len(rows) == profile.SLOWEST
    times = [float(row[2]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert re.search(r"\n\d+ faster launches take [\d.]+ ms: --all\n", out)
    assert re.match(r"[\d.]+(e-\d+)? ms a run, [\d.]+(e-\d+)? frames a second; \d+% of ", out.splitlines()[1])
    _, out, _ = imgconv(*command, "--all")
    assert [int(line.split()[0]) for line in out.splitlines() if re.match(r" *\d+  ", line)] == [*range(len(rows) + 6)]


def test_inspect_shows_the_graph_when_asked(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    command = ("inspect", "conv.onnx", "--shape", "h=8", "--device", device.index)
    _, out, _ = imgconv(*command)
    assert out.startswith("launches on [") and "graph test" not in out
    _, out, _ = imgconv(*command, "--graph")
    assert out.index("launches on") < out.index("graph test")
    assert "constant w" not in out and "1 constants of 0.00 MB" in out


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("run a.onnx a.png --presicion f", "--precision"), ("profile a.onnx --repaet=3", "--repeat"),
        ("prfile a.onnx", "profile"), ("run a.onnx a.png --resize leterbox", "letterbox"),
    ],
)
def test_wrong_words_suggest_the_right_one(imgconv: Command, line: str, meant: str) -> None:
    status, out, err = imgconv(*line.split())
    assert (status, out) == (2, "") and err.endswith(f"; did you mean {meant}?\n")


def test_a_word_unlike_any_other_suggests_nothing(imgconv: Command) -> None:
    error = "imgconv inspect: error: unrecognized arguments: --xyzzy"
    assert imgconv("inspect", "a.onnx", "--xyzzy")[2] == f"usage: imgconv inspect --help\n{error}\n"


def test_all_inputs_without_a_value_are_named(imgconv: Command, device: DeviceInfo) -> None:
    nodes = [make_node("Add", ["x", "s"], ["a"]), make_node("Add", ["a", "t"], ["y"])]
    write_model("state.onnx", nodes, {"x": [1, 3, "h", 8], "s": [8], "t": [8]})
    write_picture("a.png", (1, 2, 3), (8, 8))
    status, _, err = imgconv("verify", "state.onnx", "a.png", "--device", device.index)
    assert status == 1 and "--input s=FILE.npy --input t=FILE.npy" in err
    status, _, err = imgconv("run", "state.onnx", "--device", device.index)
    assert status == 1 and "give --input x=FILE.npy --input s=FILE.npy --input t=FILE.npy, or a PICTURE for 'x'" in err
    x = numpy.zeros((1, 3, 8, 8), numpy.float32)
    for model in (package.load("state.onnx", device), package.load("state.onnx", device, shapes={"h": 8})):
        with pytest.raises(package.InputError, match="inputs 's' and 't' are missing; the model's inputs are x, s, t"):
            model.run({"x": x})


def test_a_model_says_what_it_is(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_convolution()
    model = package.load("conv.onnx", device)
    begin = f"<imgconv.Model conv.onnx on {device.name}: x"
    assert repr(model) == f"{begin} of dynamic sizes, compiled at the first run>"
    assert list(map(str, model.inputs.values())) == ["x: float32[1, 3, -1, 10]"]
    assert str(model.preprocess(format="nv12").inputs["picture"]) == "picture: uint8[-1, -1]"
    assert model(numpy.zeros((1, 3, 5, 10), numpy.float32)).shape == (1, 4, 3, 8)
    assert repr(model).startswith(f"{begin}: float32[1, 3, 5, 10] -> y: float32[1, 4, 3, 8], ")
    model.save("m.imgconv")
    assert repr(package.load("m.imgconv", device)).startswith("<imgconv.Model m.imgconv on ")
    assert repr(package.load(onnx.load("conv.onnx"), device)).startswith("<imgconv.Model test on ")
    assert repr(model.plan).startswith("<Plan x: float32[1, 3, 5, 10] -> y: float32[1, 4, 3, 8], ")
    assert repr(model.graph).startswith("<Graph test: x: float32[1, 3, 5, 10] -> y, ")


def test_a_tensor_says_what_it_is() -> None:
    """Not all that it was made of, which doubles with each addition."""
    x = Tensor.input("x", (1, 4))
    y = x
    for _ in range(20):
        y = y + y.relu()
    assert [repr(x), repr(y)] == ["<Tensor x: float32[1, 4]>", "<Tensor unnamed: float32[1, 4]>"]
    assert str(x) == "x: float32[1, 4]" and str(x * 2) == "unnamed: float32[1, 4] = load(x) then multiply($0, 2)"
    assert str(y).startswith("unnamed: float32[1, 4] = load(t0) then add(") and "\n" not in str(y)


def test_the_package_lists_what_it_has() -> None:
    """Names that are imported at their first use too."""
    assert {"load", "Model", "export_onnx", *package.__all__, "__version__"} == set(dir(package))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_options_and_files(imgconv: Command, shell: str) -> None:
    pytest.importorskip("shtab")
    status, out, err = imgconv("completion", shell)
    assert status == 0, err
    for word in ("profile", "inspect", "--precision" if shell != "fish" else "precision", "letterbox"):
        assert word in out
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=out, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


def test_bash_completes_a_command_and_a_file(imgconv: Command, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    write_classifier("means.onnx")
    script = imgconv("completion", "bash")[1]
    for words, place, expected in (("imgconv prof", 1, "profile"), ("imgconv run mea", 2, "means.onnx")):
        ask = f"""
{script}
COMP_WORDS=({words}); COMP_CWORD={place}; COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
complete -p imgconv >/dev/null
$(complete -p imgconv | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
echo "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, cwd=tmp_path)
        assert expected in done.stdout.split(), done.stderr


ASKED = (("imgconv prof", "profile"), ("imgconv run mea", "means.onnx"), ("imgconv run means.onnx --resi", "--resize"))


def test_fish_completes_a_command_an_option_and_a_file(imgconv: Command, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    write_classifier("means.onnx")
    (tmp_path / "imgconv.fish").write_text(imgconv("completion", "fish")[1])
    found = [in_fish(line, tmp_path) for line, _ in ASKED]
    assert [each.split("\t")[0] for each in found] == [expected for _, expected in ASKED]
    assert found[0] == "profile\ttime every launch of a model and compare it with the device's peaks."


def in_fish(line: str, home: Path) -> str:
    command = ["fish", "--no-config", "-c", f"source imgconv.fish; complete -C '{line}'"]
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment, timeout=HANG_TIMEOUT)
    return done.stdout.strip()


def test_zsh_completes_a_command_an_option_and_a_file(imgconv: Command, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    write_classifier("means.onnx")
    (tmp_path / "_imgconv").write_text(imgconv("completion", "zsh")[1])
    (tmp_path / ".zshrc").write_text("PS1='ready%% '; fpath=($ZDOTDIR $fpath); autoload -Uz compinit; compinit -u -D\n")
    for line, expected in ASKED:
        assert line[: line.rindex(" ") + 1] + expected in in_zsh(line, tmp_path), line


def in_zsh(line: str, home: Path) -> str:
    """Returns the terminal's text after a line and the tab key: zsh completes only in a terminal."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(home)
        os.execvpe("zsh", ["zsh", "-i"], {**os.environ, "ZDOTDIR": str(home), "TERM": "dumb"})
    shown = until(terminal, b"ready%")
    os.write(terminal, line.encode() + b"\t\x01: \n")  # Ctrl-A, and the line is an argument of the command `:`
    shown = until(terminal, b"ready%")
    os.write(terminal, b"exit\n")
    os.waitpid(process, 0)
    os.close(terminal)
    return shown.decode()


def until(terminal: int, end: bytes) -> bytes:
    """Reads a terminal's text up to and including `end`."""
    shown = b""
    while end not in shown:
        shown += os.read(terminal, 1 << 16)
    return shown


def test_lines_stand_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("sys.stderr", shown)
    with PictureProgress(3) as counting:
        counting.step()
        terminal.say("found", style="bold")
    bar, line = re.split(r"found", shown.getvalue(), maxsplit=1)
    assert "pictures" in bar and re.search(r"\x1b\[2K(\x1b\[1m)?$", bar), "the bar is cleared before the line"
    assert "pictures" in line and "found" not in line, "and drawn again below it"
