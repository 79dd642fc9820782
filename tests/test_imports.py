"""Imports point strictly downward, and outside packages have few doors."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "imgconv"

# Lowest first. A module imports from lower rows only; the modules of a package (ops, cl ...) are one entry.
ENGINE = (
    "arrays build_options dtype errors version",
    "files limits suppression",
    "cl config graph",
    "kernels onnx_export tensor",
    "ops passes preprocessing",
    "host",
    "compiling onnx_import",
    "stored",
    "runtime",
    "checking",
    "precision",
    "loading",
    "model",
    "__init__",
)
APPLICATION = (
    "pictures",
    "preprocess tasks",
    "answers picture_settings",
    "reports",
    "batch commands",
    "cli",
    "__main__",
)
LAYERS = tuple(frozenset(row.split()) for row in ENGINE + APPLICATION)

# Who may import what from outside, by the first parts of their names.
DOORS = {
    "pyopencl": {"cl"}, "platformdirs": {"files"}, "onnx": {"onnx_import", "onnx_export", "reports"},
    "onnxruntime": {"reports"}, "av": {"pictures"},
}
# The last one passes it on to the process that it starts.
ENVIRONMENT_READERS = {"config", "cl.drivers", "reports.first_result"}


def name_of(path: Path) -> str:
    """cl/device.py is cl.device; cl/__init__.py is cl; __init__.py is __init__."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def imported(tree: ast.Module) -> set[str]:
    """Every dotted name that the module imports, anywhere in it: "a.b" of `import a.b` and of `from a import b`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_of(name: str) -> str | None:
    """The module of imgconv that a dotted name is, or is in: that of the longest part; None outside of imgconv."""
    package, *parts = name.split(".")
    if package != "imgconv":
        return None
    heads = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((head for head in heads if head in modules()), "__init__")


def imported_modules(name: str, tree: ast.Module | None = None) -> set[str]:
    """The modules of imgconv that a module imports."""
    found = map(module_of, imported(tree or modules()[name]))
    return {other for other in found if other is not None} - {name}


def level(name: str) -> int:
    top = name.partition(".")[0]
    found = [number for number, layer in enumerate(LAYERS) if top in layer]
    assert found, f"{name} is in no row of LAYERS: say where it belongs"
    return found[0]


def test_every_alias_is_resolved() -> None:
    lines = """
import os.path, imgconv.cl.context
from imgconv import __version__
from imgconv.ops import find, pooling
from imgconv.stored import blobs
if True:
    from imgconv.errors import Error
"""
    found = imported_modules("model", ast.parse(lines))
    assert found == {"cl.context", "__init__", "stored.blobs", "ops", "ops.pooling", "errors"}
    assert imported_modules("model", ast.parse("import imgconv")) == {"__init__"}


def test_every_layer_exists() -> None:
    tops = {name.partition(".")[0] for name in modules()}
    assert tops == frozenset().union(*LAYERS)


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_downward(name: str) -> None:
    for other in imported_modules(name):
        same_package = name.partition(".")[0] == other.partition(".")[0]
        assert same_package or level(other) < level(name), f"{name} imports {other}, which is not below it"


# What a folder's __init__.py says that a line in it may know: the others of imgconv that it imports.
KNOWS = {
    "files": {"errors"},
    "graph": {"arrays", "errors", "limits", "suppression"},
    "kernels": {"arrays", "config", "dtype", "errors", "graph"},
    "passes": {"arrays", "errors", "graph", "kernels", "limits"},
    "compiling": {"arrays", "build_options", "config", "dtype", "errors", "graph", "host", "kernels", "passes"},
    "stored": {
        "arrays", "build_options", "compiling", "config", "dtype", "errors", "files", "graph", "kernels", "limits",
        "preprocessing", "version",
    },
    "preprocessing": {"arrays", "errors", "graph", "tensor"},
    "pictures": {"arrays", "errors", "files", "preprocessing"},
    "host": {"arrays", "errors", "graph", "ops", "tensor", "suppression"},
    "tasks": {"arrays", "errors", "graph", "pictures", "preprocessing", "stored", "suppression", "tensor"},
}


@pytest.mark.parametrize("folder", KNOWS)
def test_a_folder_knows_what_it_says(folder: str) -> None:
    inside = [name for name in modules() if name.partition(".")[0] == folder]
    found = {other.partition(".")[0] for name in inside for other in imported_modules(name)} - {folder}
    assert found == KNOWS[folder]


def test_no_cycles() -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for other in imported_modules(name):
                visit(other, (*path, name))
            done.add(name)

    for name in modules():
        visit(name, ())


def test_compiling_needs_no_device() -> None:
    reached, waiting = set(), ["compiling.compiler", "onnx_import", "tensor"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imported_modules(name)
    assert not {name for name in reached if name.partition(".")[0] in ("cl", "runtime", "precision", "loading")}


@pytest.mark.parametrize("package", DOORS)
def test_outside_packages_have_few_doors(package: str) -> None:
    users = {name for name, tree in modules().items() if any(n.partition(".")[0] == package for n in imported(tree))}
    assert users and {name.partition(".")[0] for name in users} == DOORS[package]


def test_environment_is_read_in_one_place() -> None:
    readers = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert readers == ENVIRONMENT_READERS


def test_import_is_light() -> None:
    """Neither OpenCL nor onnx is loaded before something needs it."""
    code = "import sys, imgconv; print(*({'pyopencl', 'onnx', 'PIL', 'rich'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
