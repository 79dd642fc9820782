"""Every command and code block of README and docs/ runs here, on small models with the names that the pages use.

Indented lines and blocks count. A command whose files are not among those of `prepare` is only parsed. What is not
imgconv, such as pip, apt and make, is compared with setup.cfg, the Makefile and the packages of the repository.
"""

from __future__ import annotations

import configparser
import importlib.util
import inspect
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from command_line import write_model
import numpy
import onnx
from onnx.helper import make_node
from PIL import Image
from planted import overflow_model
import pytest

import imgconv
from imgconv import cli
from imgconv.cl.device import DeviceInfo
from models import build

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Recipes for changes of imgconv itself: their code is code of the repository.
RECIPES = ROOT / "docs" / "architecture" / "recipes.md"
# What keeps a command short here.
FILES = (".onnx", ".imgconv", ".jpg", ".png", ".json", ".mp4")
SHORT = {"profile": ["--repeat", "2"], "tune": ["--budget", "0.2"], "bench": ["--seconds", "0.1"]}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def prepare() -> dict[str, Any]:
    """Writes the models and pictures, and gives what code blocks may use without saying where it is from."""
    random = numpy.random.default_rng(0)
    imgconv.export_onnx(build("conv_gru", width=0.25, size=64), "matting.onnx")
    write_model("upload.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, 3, 4, 4]})
    constants = {"w": random.normal(size=(1000, 3, 1, 1)).astype(numpy.float32) * 0.01}
    nodes = [
        make_node("GlobalAveragePool", ["data_0"], ["mean"]), make_node("Conv", ["mean", "w"], ["scores"]),
        make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    write_model("squeezenet.onnx", nodes, {"data_0": [1, 3, 224, 224]}, constants)
    model = onnx.load("squeezenet.onnx")
    model.graph.node[-1].output[0] = model.graph.output[0].name = "softmaxout_1"
    onnx.save(model, "squeezenet.onnx")
    nine = {"w": numpy.ones((9, 1, 1, 1), numpy.float32)}
    nodes = [make_node("Conv", ["input", "w"], ["nine"]), make_node("DepthToSpace", ["nine"], ["y"], blocksize=3)]
    write_model("espcn.onnx", nodes, {"input": [1, 1, 32, 32]}, nine)
    write_model("with_scaled_swish.onnx", [make_node("ScaledSwish", ["x"], ["y"], domain="my.domain", alpha=2.0)],
                {"x": [1, 3, 4, 4]})
    onnx.save(with_domain("with_scaled_swish.onnx", "my.domain"), "with_scaled_swish.onnx")
    cells = numpy.zeros((1, 3549, 85), numpy.float32)
    nodes = [make_node("ReduceMean", ["images"], ["m"], keepdims=0), make_node("Mul", ["m", "cells"], ["y"])]
    write_model("yolox_nano.onnx", nodes, {"images": [1, 3, 416, 416]}, {"cells": cells})
    onnx.save(overflow_model(), "planted.onnx")
    for name, size in ("wolves.jpg", (50, 33)), ("kitten_224.png", (224, 224)), ("australia.jpg", (40, 36)), (
        "a.jpg", (30, 20)), ("000000000785.jpg", (64, 42)):
        Image.fromarray(random.integers(0, 255, (*size[::-1], 3), numpy.uint8)).save(name)
    Path("photos").mkdir()
    Image.new("RGB", (9, 8)).save("photos/b.jpg")
    Path("labels.txt").write_text("".join(f"class {n}\n" for n in range(1000)))
    detector = SimpleNamespace(run=lambda inputs: {"output": numpy.zeros((1, 3549, 85), numpy.float32)})
    return {"frames": [numpy.zeros((1, 3, 64, 64), numpy.float32)] * 2, "model": detector, "imgconv": imgconv}


def with_domain(path: str, domain: str) -> onnx.ModelProto:
    model = onnx.load(path)
    model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return model


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in FENCED.findall(page.read_text(encoding="utf-8")) if found == language]


def shell_lines(page: Path) -> list[str]:
    """Every line of code that is a command: in blocks of a shell, and where it is indented."""
    text = page.read_text(encoding="utf-8")
    inside = [line for language in ("sh", "console") for code in blocks(page, language) for line in code.splitlines()]
    indented = re.findall(r"^    (\S.*)$", FENCED.sub("", text), re.MULTILINE)
    lines = [re.sub(r"\s+#.*", "", line.removeprefix("$ ")).strip() for line in inside + indented]
    words = ("imgconv ", "python -m ", "python docs/", "pip ", "make ", "cat ", "apt ", "pkg ", "export ")
    return [line for line in lines if line.startswith(words)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: DeviceInfo) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IMGCONV_DEVICE", str(device.index))
    return prepare()


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if page != RECIPES and blocks(page, language)]


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.stem)
def test_code_runs_in_order(page: Path, folder: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from imgconv.ops import registry

    monkeypatch.setattr(registry, "_OPERATORS", dict(registry._OPERATORS))
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec", dont_inherit=True), folder)


def commands(page: Path) -> list[str]:
    return [line for line in shell_lines(page) if line.startswith("imgconv ")]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_commands_run(page: Path, folder: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for line in commands(page):
        words = shlex.split(line.partition(" > ")[0])[1:]
        if any(each.isupper() for each in words if not each.startswith("-")):
            continue  # MODEL, FILE: said in words
        words += SHORT.get(words[0], []) if "--precision" not in words else []
        files = [each for each in words[1:] if Path(each).suffix in FILES]
        outputs = {words[n + 1] for n, each in enumerate(words) if each in ("--output", "-o", "--jsonl", "--coco")}
        if all(Path(each).exists() for each in files if each not in outputs) and not re.search(r"/dev/|-$", line):
            assert cli.main(words) == 0, (line, capsys.readouterr().err)
        else:
            cli.parse(words)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_other_commands_name_what_there_is(page: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    text = page.read_text(encoding="utf-8")
    extras = set(re.findall(r"(?:imgconv|\.)\[([a-z,]+)\]", text))
    assert {each for listed in extras for each in listed.split(",")} <= set(setup["options.extras_require"])
    targets = {line.split()[1] for line in shell_lines(page) if line.startswith("make ")}
    targets |= set(re.findall(r"`make ([a-z0-9-]+)", text))
    assert targets <= make_targets()
    modules = set(re.findall(r"python -m ([a-z_]+(?:\.[a-z_]+)*)", text)) - {"pytest", "build"}
    for module in modules:
        assert importlib.util.find_spec(module), module
    for path in re.findall(r"`((?:docs|models|examples|benchmarks|native|imgconv|tests)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and MkDocs give the page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))  # a lambda of C++ looks like a link
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), (target, anchor)


def test_recipes_are_code_of_the_repository() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for folder in ("imgconv", "tests")
                      for path in sorted((ROOT / folder).rglob("*.py")))
    plain = re.sub(r"\s+", " ", sources)
    for code in blocks(RECIPES, "python"):
        shown = [re.sub(r"\s+", " ", line).strip() for line in code.splitlines()]
        assert all(line in plain for line in shown if line), code


def test_every_page_is_in_the_site() -> None:
    listed = set(re.findall(r"- ([a-z_/]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}


def test_the_table_of_operators_has_every_operator() -> None:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec and spec.loader
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = hooks.on_page_markdown((ROOT / "docs" / "operators.md").read_text())
    table = "\n".join(line for line in page.splitlines() if line.startswith("| "))
    assert set(re.findall(r"`([^`]+)`", table)) == {name.rpartition(".")[2] for name in imgconv.ops.supported()}
    assert "{{" not in page


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 170


def test_the_interface_has_every_exported_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    errors = {name for name in imgconv.__all__ if name.endswith("Error")}
    named = set(re.findall(r"^::: imgconv\.(\w+)$", page, re.MULTILINE))
    assert named >= set(imgconv.__all__) - errors - {"ops"} and "errors" in named


def test_every_argument_of_load_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == set(inspect.signature(imgconv.load).parameters)
