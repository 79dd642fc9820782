"""The Rust crate: it declares what imgconv.h does, and gives the bits of Python. See test_camera.py too."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
from graphs import const, numbers
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parent.parent.parent
CRATE = ROOT / "native" / "rust"
HEADER = ROOT / "native" / "include"
C_NAMES = {"region": "left"}


def structs() -> dict[str, list[str]]:
    """The fields of each struct of c.rs that are the library's, by the name that the header has."""
    found = {}
    for name, body in re.findall(r"pub struct (\w+) \{\n(.*?)\n\}", (CRATE / "src" / "c.rs").read_text(), re.DOTALL):
        fields = re.findall(r"pub (\w+):", body)
        found[name] = [field for field in fields if field != "reserved"]
    assert set(found) == {"Error", "Tensor", "Plane", "VideoFrame", "Array", "Options"}
    return found


def c_name(struct: str) -> str:
    return "imgconv_" + re.sub("(?<=[a-z])(?=[A-Z])", "_", struct).lower()


def test_the_layout_is_that_of_the_header(tmp_path: Path) -> None:
    """Each field begins where it does in C, and no struct of C is larger."""
    if shutil.which("rustc") is None or shutil.which("cc") is None:
        pytest.skip("no rustc or no C compiler is installed: install rustc gcc")
    in_c = ["#include <imgconv.h>", "#include <stdio.h>", "int main(void) {"]
    in_rust = ["#![allow(dead_code)]", f'#[path = "{CRATE}/src/c.rs"] mod c;', "fn main() {"]
    for struct, fields in structs().items():
        in_c.append(f'printf("{struct} %zu\\n", sizeof({c_name(struct)}));')
        in_rust.append(f'println!("{struct} {{}}", std::mem::size_of::<c::{struct}>());')
        in_rust.append(f"let made = std::mem::MaybeUninit::<c::{struct}>::uninit(); let base = made.as_ptr();")
        for field in fields:
            in_c.append(f'printf("{field} %zu\\n", offsetof({c_name(struct)}, {C_NAMES.get(field, field)}));')
            address = f"unsafe {{ std::ptr::addr_of!((*base).{field}) }} as usize - base as usize"
            in_rust.append(f'println!("{field} {{}}", {address});')
    (tmp_path / "c.c").write_text("\n".join([*in_c, "}"]))
    (tmp_path / "r.rs").write_text("\n".join([*in_rust, "}"]))
    subprocess.run(["cc", "-std=c11", "-I", HEADER, "c.c", "-o", "c"], cwd=tmp_path, check=True)
    subprocess.run(["rustc", "--edition", "2018", "r.rs", "-o", "r"], cwd=tmp_path, check=True)
    said = [subprocess.run([tmp_path / name], capture_output=True, text=True, check=True).stdout for name in "cr"]
    for c, rust in zip(*(text.splitlines() for text in said), strict=True):
        (name, offset), (same, found) = c.split(), rust.split()
        assert name == same
        assert int(offset) <= int(found) if name[0].isupper() else offset == found, (c, rust)


def run(program: Path, *words: object, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [program, *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT
    )


def test_a_run(device: DeviceInfo, environment: dict[str, str], rust_examples: Path, tmp_path: Path) -> None:
    """The bits of Python, the list of tensors, and errors as results."""
    x = Tensor.input("x", (1, 3, 9, 7))
    half = Tensor.input("half", (4,), "float16")
    outputs = {"y": x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu(), "z": half * 2}
    model = imgconv.load(build_graph(outputs, [x, half]), device=device)
    model.save(tmp_path / "m")
    given = {"x": numbers(1, 3, 9, 7), "half": numpy.arange(4, dtype=numpy.float16)}
    for name, array in given.items():
        (tmp_path / name).write_bytes(array.tobytes())
    done = run(rust_examples / "run", "m", device.index, *given, *outputs, folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "x: float32 [1, 3, 9, 7]\nhalf: float16 [4]\ny: float32 [1, 6, 9, 7]" in done.stdout
    for name, array in model.run(given).items():
        assert (tmp_path / name).read_bytes() == array.tobytes()
    (tmp_path / "x").write_bytes(b"short")
    for words, text in ((("m", device.index, *given, "y", "z"), "not 5"), (("x",), "not a compiled imgconv model")):
        done = run(rust_examples / "run", *words, folder=tmp_path, environment=environment)
        assert done.returncode == 1 and text in done.stderr, done.stderr
