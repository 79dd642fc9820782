"""Files that are damaged, made up or of other releases: the player refuses them or gives the right results."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import numpy
import pytest
from support import damaged
from graphs import const, numbers
from played import Play

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.stored import compiled_file
from imgconv.tensor import Tensor, build_graph

X = numbers(1, 3, 9, 7)


@pytest.fixture(scope="module")
def path(device: DeviceInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = Tensor.input("x", X.shape)
    y = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    graph = build_graph({"y": y, "labels": Tensor.constant(numpy.arange(5))}, [x])
    path = tmp_path_factory.mktemp("saved") / "m.imgconv"
    imgconv.load(graph, device=device).save(path)
    return path


def test_damage_is_found(device: DeviceInfo, path: Path, play: Play, tmp_path: Path) -> None:
    """From a file and from memory, which need not be aligned."""
    for number, content in enumerate(damaged(path.read_bytes())):
        (tmp_path / f"{number}").write_bytes(content)
    lines = f"""
        from pathlib import Path
        whole = Path({str(path)!r}).read_bytes()
        expected, refused = Player(whole, "{device.index}").run(given), 0
        for number in range(300):
            name = str(number)
            try:
                model = Player(Path(name).read_bytes() if number % 2 else name, "{device.index}")
            except PlayerError as error:
                assert error.status == "FILE", error
                assert number % 2 or f"file '{{number}}'" in error.message, error
                refused += 1
            else:
                found = model.run(given)
                assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)
                model.close()
        results["refused"] = numpy.array(refused)
    """
    assert play(lines, {"x": X})["refused"] > 200


def test_damaged_streams_are_found(device: DeviceInfo, path: Path, play: Play, tmp_path: Path) -> None:
    """Heads whose checksum is right, but whose LZMA stream is not: refused, or no model."""
    content, generator = path.read_bytes(), random.Random(0)
    length = struct.unpack_from("<Q", content, 16)[0]
    for number in range(300):
        changed = bytearray(content)
        for _ in range(generator.choice((1, 1, 8))):
            changed[64 + generator.randrange(length)] = generator.randrange(256)
        struct.pack_into("<I", changed, 12, zlib.crc32(changed[64 : 64 + length]))
        (tmp_path / f"{number}").write_bytes(changed)
    lines = """
        refused = 0
        for number in range(300):
            try:
                Player(str(number)).close()
            except PlayerError as error:
                refused += error.status == "FILE"
        results["refused"] = numpy.array(refused)
    """
    assert play(lines, {"x": X})["refused"] > 250


def test_a_file_that_needs_a_newer_reader(
    device: DeviceInfo, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = Tensor.input("x", X.shape)
    newer = compiled_file.READS + 1
    monkeypatch.setattr(compiled_file, "NEEDS", newer)
    imgconv.load(build_graph({"y": x * 2}, [x]), device=device).save(tmp_path / "m")
    said = f"for readers of version {newer}, this library reads {newer - 1}"
    lines = f"""
        try:
            Player("m")
        except PlayerError as error:
            assert error.status == "FILE" and "{said}" in error.message, error
        else:
            assert False
    """
    play(lines)


def test_files_of_earlier_releases(device: DeviceInfo, play: Play) -> None:
    """Every file that is kept runs by its plan, which takes images in buffers; a device without them is refused."""
    kept = sorted((Path(__file__).parent.parent / "stored" / "kept").glob("*.imgconv"))
    assert kept
    for path in kept:
        with numpy.load(path.with_suffix(".npz")) as arrays:
            given, expected = {"x": arrays["x"]}, {name: arrays[name] for name in ("y", "kept", "labels")}
        lines = f"""
            try:
                results.update(Player({str(path)!r}, "{device.index}").run(given))
            except PlayerError as error:
                assert error.status == "UNFIT" and "the device has no images in buffers" in error.message, error
        """
        found = play(lines, given)
        assert bool(found) == bool(device.image_row_alignment)
        for name, array in expected.items() if found else ():
            numpy.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
