"""The file libimgconv.so: what it exports, and its size."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

from imgconv.version import VERSION

HEADER = Path(__file__).parent.parent.parent / "native" / "include" / "imgconv.h"
# Stripped, with the methods for Java. The second is for a compiler that links the C++ library into it.
MOST_BYTES, MOST_WITH_CXX_LIBRARY = 600_000, 1_500_000


def test_it_exports_its_interface_only(built: Path) -> None:
    """A C++ library linked into it exports nothing: a process may have another one, and mixing the two crashes."""
    lines = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=just-symbols", built / "libimgconv.so"],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    exported = {name for name in lines if not name.startswith("Java_imgconv_Model_")}
    assert exported == set(re.findall(r"^IMGCONV_API .*?(imgconv_\w+)\(", HEADER.read_text(), re.MULTILINE))


def test_its_version_is_the_packages(built: Path) -> None:
    numbers = re.findall(r"^#define IMGCONV_VERSION_(MAJOR|MINOR|PATCH) (\d+)$", HEADER.read_text(), re.MULTILINE)
    assert [name for name, _ in numbers] == ["MAJOR", "MINOR", "PATCH"]
    version = ctypes.CDLL(str(built / "libimgconv.so")).imgconv_version
    version.restype = ctypes.c_char_p
    assert version().decode() == ".".join(number for _, number in numbers) == VERSION
    assert f"Version: {VERSION}\n" in (built / "imgconv.pc").read_text()


def test_java_names_each_status() -> None:
    statuses = re.findall(r"IMGCONV_ERROR_(\w+) = (\d+)", HEADER.read_text())
    java = (HEADER.parent.parent / "java" / "imgconv" / "Model.java").read_text()
    (constants,) = re.findall("public static final int (ARGUMENT = .*?);", java, re.DOTALL)
    assert re.findall(r"(\w+) = (\d+)", constants) == statuses and len(statuses) > 12


def test_it_is_small(built: Path, tmp_path: Path) -> None:
    needed = subprocess.run(["readelf", "--dynamic", built / "libimgconv.so"], capture_output=True, text=True).stdout
    subprocess.run(["strip", "-o", tmp_path / "stripped.so", built / "libimgconv.so"], check=True)
    most = MOST_BYTES if "c++" in needed else MOST_WITH_CXX_LIBRARY
    assert (tmp_path / "stripped.so").stat().st_size <= most
