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
from kept import GENERIC, KEPT, assert_close, runs_of
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


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_format(path: Path, device: DeviceInfo, play: Play) -> None:
    """It runs by its plan, and the player reads its checks, and a frame as it is in memory."""
    runs, inputs = runs_of(path), {}
    for number, (given, _) in enumerate(runs):
        inputs |= {f"{number} {name}": array for name, array in given.items()}
    lines = f"""
        def opened(shapes):
            model = Player({str(path)!r}, "{device.index}", shapes=shapes)
            assert "wrong" not in [each["verdict"] for each in model.check()["launches"]]
            return model
        models = dict()
        try:
            for number in range({len(runs)}):
                own = f"{{number}} "
                arrays = {{name.removeprefix(own): given[name] for name in given if name.startswith(own)}}
                shapes = " ".join(f"{{name}}={{','.join(map(str, array.shape))}}" for name, array in arrays.items())
                if shapes not in models:
                    models[shapes] = opened(shapes)
                results.update({{f"{{number}} {{n}}": a for n, a in models[shapes].run(arrays).items()}})
                if "picture" in arrays:
                    picture = arrays["picture"]
                    frame = VideoFrame.of([(picture, 0, 0, 0)], picture.shape[1], picture.shape[0])
                    for name, array in models[shapes].run(dict(picture=frame)).items():
                        assert array.tobytes() == results[f"{{number}} {{name}}"].tobytes()
        except PlayerError as error:
            results["refused"] = numpy.array(str(error))
    """
    found = play(lines, inputs)
    if "refused" in found:
        lacks = "CL_KERNEL_WORK_GROUP_SIZE" if path in GENERIC else "the device has no images in buffers"
        assert str(found["refused"]).startswith("UNFIT") and lacks in str(found["refused"]), found
        assert path in GENERIC or not device.image_row_alignment, found
        pytest.skip(f"the device is too small for the file's plans: {lacks}")
    for number, (_, expected) in enumerate(runs):
        own = f"{number} "
        mine = {name.removeprefix(own): found[name] for name in found if name.startswith(own)}
        assert_close(path, mine, expected)
