"""Intel's driver in a folder whose path has a space, where it does not find its own files."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from test_cl_device import pip_driver_installed, run_python

from imgconv.cl.driver_links import path_problem, path_without_spaces

NAME = "libintelocl.so"
pytestmark = pytest.mark.skipif(not pip_driver_installed(), reason="intel-opencl-rt is not installed here")
# A process in which pip has installed the driver there.
INSTALLED = """
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
library = Path({!r})
metadata.files = lambda name: [SimpleNamespace(name=library.name, locate=lambda: library)]
"""
RUN = """
import numpy, imgconv
from imgconv.cl.device import list_devices
from imgconv.tensor import Tensor, build_graph
x = Tensor.input("x", (1, 4, 5, 6))
(device,) = [each for each in list_devices() if each.platform == "Intel(R) OpenCL"]
model = imgconv.load(build_graph({"y": x.exp()}, [x]), device=device)
print(model.run({"x": numpy.zeros((1, 4, 5, 6), "f4")})["y"].sum())
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """The driver's library in a path with a space."""
    files = metadata.files("intel-opencl-rt") or []
    (own,) = {Path(os.path.realpath(str(file.locate()))).parent / NAME for file in files if file.name == NAME}
    folder = tmp_path / "räum lich" / "lib"
    folder.mkdir(parents=True)
    for each in own.parent.iterdir():
        if each.is_file() and each.name != NAME:
            (folder / each.name).symlink_to(each)
    try:
        os.link(own, folder / NAME)
    except OSError:  # another file system
        shutil.copy(own, folder / NAME)
    return folder / NAME


@pytest.mark.parametrize("cache", ["cache", "a cache"])
def test_it_works_by_a_link(library: Path, tmp_path: Path, cache: str) -> None:
    """In the cache; or, if that has a space too, among the temporary files."""
    (tmp_path / "temporary").mkdir()
    variables = {"XDG_CACHE_HOME": str(tmp_path / cache), "TMPDIR": str(tmp_path / "temporary")}
    assert run_python(INSTALLED.format(str(library)) + RUN, **variables, PYTHONWARNINGS="ignore").split() == ["120.0"]
    temporary = tmp_path / "temporary" / f"imgconv-drivers-{os.geteuid()}"
    (folder,) = (temporary if " " in cache else tmp_path / "cache" / "imgconv" / "drivers").iterdir()
    assert {each.name for each in folder.iterdir()} == {each.name for each in library.parent.iterdir()}


def test_without_a_folder_for_the_link_the_error_says_what_helps(library: Path, tmp_path: Path) -> None:
    code = """
from imgconv.commands.driver_list import list_drivers
try:
    {}
except imgconv.DeviceError as error:
    print(error)
print(*[driver.problem for driver in list_drivers({{"Intel(R) OpenCL"}}) if driver.library == str(library)])
"""
    code = INSTALLED.format(str(library)) + code.format(RUN.strip().replace("\n", "\n    "))
    (tmp_path / "a temporary").mkdir()
    variables = {"XDG_CACHE_HOME": str(tmp_path / "a cache"), "TMPDIR": str(tmp_path / "a temporary")}
    found = run_python(code, **variables, PYTHONWARNINGS="ignore").splitlines()
    assert len(found) == 2
    for line in found:
        assert repr(str(library)) in line and "XDG_CACHE_HOME" in line


def test_links_are_kept_until_their_driver_is_gone(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = path_without_spaces(library)
    assert first.exists() and not path_problem(str(first)) and path_problem(str(library))
    before = first.stat().st_ino, first.parent.stat().st_ino
    assert path_without_spaces(library) == first and (first.stat().st_ino, first.parent.stat().st_ino) == before
    other = library.parent.rename(tmp_path / "an other") / NAME
    second = path_without_spaces(other)
    assert second.exists() and not first.exists()
    assert [each.name for each in second.parent.parent.iterdir()] == [second.parent.name]


def test_other_paths_are_left_alone(tmp_path: Path) -> None:
    assert path_without_spaces(tmp_path / NAME) == tmp_path / NAME
    assert not path_problem("/a b/libpocl.so") and not path_problem(f"/ab/{NAME}")
