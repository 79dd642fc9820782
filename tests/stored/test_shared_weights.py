"""Weights are in a file once: packed ones are views of the graph's constants, element by element."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from graphs import Taking, const, prefer_large_tiles
from snapshots import DEVICES

from imgconv.checking.player_checks import with_checks
from imgconv.compiling.compiler import prepare
from imgconv.config import Config, Precision
from imgconv.errors import ModelError
from imgconv.files import container
from imgconv.kernels.winograd.problem import Specialisation
from imgconv.stored.blobs import ZERO, BlobWriter, read_array
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model
from imgconv.stored.shared_weights import view_of
from imgconv.tensor import Tensor, build_graph

X = Tensor.input("x", (1, 12, 9, 10))
NETWORKS = {
    "whole quads": lambda: X.conv2d(const(64, 12, 3, 3)), "parts of quads": lambda: X.conv2d(const(50, 12, 3, 3)),
    "one channel": lambda: X.slice(1, 0, 1).conv2d(const(70, 1, 3, 3)),
    "groups": lambda: X.conv2d(const(48, 4, 3, 3), groups=3),
    "thin groups": lambda: X.conv2d(const(24, 2, 5, 5), groups=6),
    "depthwise": lambda: X.conv2d(const(12, 1, 7, 7), groups=12),
    "transposed": lambda: X.conv_transpose2d(const(12, 30, 3, 3), stride=2),
    "matrix": lambda: X.reshape(108, 10) @ const(10, 90),
    "taps": lambda: X.conv2d(const(46, 12, 3, 3), padding=1),
    "taps in float": lambda: X.conv2d(const(46, 12, 3, 3), padding=1),
    "taps of large tiles": lambda: X.conv2d(const(46, 12, 3, 3), padding=1),
    "taps of large tiles in float": lambda: X.conv2d(const(46, 12, 3, 3), padding=1),
}


@pytest.mark.parametrize("float16", [0, 1])
@pytest.mark.parametrize("target", ["small gpu", "large gpu", "cpu"])
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_stored_once(
    name: str, target: str, float16: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_taps, large = name.startswith("taps"), "large tiles" in name
    choosing = {"winograd2d": lambda *_: Specialisation((8, 4, 1))} if of_taps else {}
    prefer_large_tiles(monkeypatch)
    monkeypatch.setattr(container, "MOST_COMPRESSED", 0)
    precision = Precision(
        frozenset("y" if name.endswith("in float") else ""), large_tiles=frozenset("y" if large else "")
    )
    config = Config(float16, precision=precision)
    prepared = prepare(build_graph({"y": NETWORKS[name]()}, [X]), config, DEVICES[target], Taking(**choosing))
    graph, plan = prepared.graph, prepared.plan()
    save_model(tmp_path / "m", graph, config, [DevicePlan(plan, "d", DEVICES[target])])
    saved = SavedModel.open(tmp_path / "m")
    (read,) = saved.read_plans()
    for storage, content in plan.content.items():
        assert read.plan.content[storage].tobytes() == content.tobytes(), storage
    largest = max(graph.constants.values(), key=lambda each: each.nbytes)
    halves = any(content.dtype == "float16" for content in plan.content.values())
    found = next(each for each in saved.read_graph().constants.values() if each.shape == largest.shape)
    expected = largest.astype("float16").astype("float32") if halves else largest
    numpy.testing.assert_array_equal(found, expected)
    if of_taps and (target, float16) == ("small gpu", 1):
        assert any(each.source.path.endswith("winograd2d.cl") for each in plan.launches)
        assert saved.table.needs == (6 if large else 5)
    stored = sum(place.bytes for place in saved.table.blobs)
    # Zeros between groups are no view.
    assert name == "thin groups" or stored <= largest.nbytes // (2 if halves else 1) + 1024, (stored, largest.nbytes)


def test_weights_of_small_files_are_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that cannot decompress them refuse the file; of a larger file the weights are as they were."""
    prepared = prepare(build_graph({"y": NETWORKS["whole quads"]()}, [X]), Config(), DEVICES["small gpu"])
    graph, plan = prepared.graph, prepared.plan()
    sizes = {}
    for most, needs in ((0, 4), (container.MOST_COMPRESSED, 7)):
        monkeypatch.setattr(container, "MOST_COMPRESSED", most)
        save_model(tmp_path / "m", graph, Config(), [DevicePlan(plan, "d", DEVICES["small gpu"])])
        saved = SavedModel.open(tmp_path / "m")
        assert saved.table.needs == needs
        sizes[needs] = sum(place.bytes for place in saved.table.blobs)
        for name, array in saved.read_graph().constants.items():
            numpy.testing.assert_array_equal(array, graph.constants[name])
        for storage, content in saved.read_plans()[0].plan.content.items():
            assert content.tobytes() == plan.content[storage].tobytes()
    assert sizes[7] < 0.95 * sizes[4]


def test_a_constant_that_a_plan_keeps_in_float_stays_exact(tmp_path: Path) -> None:
    """Two plans of one file, one in half: the file has floats, and the halves apart."""
    prepared = prepare(build_graph({"y": NETWORKS["whole quads"]()}, [X]), Config(), DEVICES["small gpu"])
    graph, plan = prepared.graph, prepared.plan()
    half = prepare(graph, Config(1), DEVICES["small gpu"]).plan()
    plans = [DevicePlan(each, "d", DEVICES["small gpu"]) for each in (half, plan)]
    save_model(tmp_path / "m", graph, Config(), plans)
    saved = SavedModel.open(tmp_path / "m")
    for read, each in zip(saved.read_plans(), plans, strict=True):
        for storage, content in each.plan.content.items():
            assert read.plan.content[storage].tobytes() == content.tobytes()
    for name, array in saved.read_graph().constants.items():
        numpy.testing.assert_array_equal(array, graph.constants[name])


def table(**changed: Any) -> Any:
    """An Array table: the transpose of a 2x3 array, with a zero, and a limit that makes the last element 0."""
    values = {
        "dtype": "float32", "shape": [3, 2], "blob": 0, "stored": "", "tables": [0, 1, ZERO, 0, 3],
        "limits": [2], "counts": [0, 1, 0, 0, 1], "taps": 0,
    }
    return SimpleNamespace(**{**values, **changed})


BLOB = numpy.arange(1, 7, dtype=numpy.float32)


def test_a_view_is_read() -> None:
    found = read_array(table(), lambda _: BLOB.tobytes())
    numpy.testing.assert_array_equal(found, [[1, 4], [2, 0], [0, 0]])
    halves = table(stored="float16", tables=[], limits=[], counts=[])
    found = read_array(halves, lambda _: BLOB.astype(numpy.float16).tobytes())
    assert found.dtype == numpy.float32 and found.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("changed", [
    {"tables": [0, 1, 2, 0, 4]}, {"tables": [-1, 1, 2, 0, 3]}, {"tables": [0, 1, 2, 0]}, {"counts": [0]},
    {"limits": [2, 2]}, {"shape": [1 << 30, 1 << 30]}, {"shape": [-3, 2]}, {"stored": "object"}, {"stored": "float16"},
    {"tables": [], "shape": [7]}, {"shape": []}, {"tables": [], "shape": [6], "taps": 1}, {"taps": 3},
], ids=str)
def test_a_made_up_view_is_refused(changed: dict[str, Any]) -> None:
    blob = BLOB if changed != {"stored": "float16"} else BLOB[:1]
    limits = {} if "limits" in changed or "counts" in changed else {"limits": [], "counts": []}
    with pytest.raises((ModelError, ValueError, TypeError)):
        read_array(table(**limits | changed), lambda _: blob.tobytes())


@pytest.mark.parametrize(("taps", "matrix"), [
    (1, [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    (2, [*([1, point, point**2] for point in (0, 0.75, -0.75, 1.5, -1.5)), [0, 0, 1]]),
])
def test_a_view_of_taps_is_read(taps: int, matrix: list[list[float]]) -> None:
    """Taps are G g G' for a window g of halves, however small its numbers are; a half is the nearest one."""
    windows = numpy.random.default_rng(0).normal(size=(2, 3, 3)).astype(numpy.float16)
    windows[1] *= numpy.float16(1e-5)
    g = numpy.float64(matrix)
    expected = (g @ windows.astype(numpy.float64) @ g.T).reshape(-1).astype(numpy.float32)
    size = expected.size
    about = {"stored": "float16", "limits": [], "counts": [], "taps": taps, "shape": [size], "tables": range(size)}
    for dtype in ("float32", "float16"):
        found = read_array(table(dtype=dtype, **about), lambda _: windows.tobytes())
        numpy.testing.assert_array_equal(found, expected.astype(dtype))
    with pytest.raises(ModelError, match="leads out of it"):
        read_array(table(**about | {"tables": range(1, size + 1)}), lambda _: windows.tobytes())


def test_arrays_of_equal_bytes_are_one_blob() -> None:
    blobs = BlobWriter()
    first, second = blobs.array(BLOB), blobs.array(BLOB.reshape(2, 3))
    assert first["blob"] == second["blob"] and len(blobs.parts) == 1


def test_a_view_is_of_one_shape() -> None:
    """Plans for several devices pack the same bytes as arrays of another rank."""
    home, packed = numpy.arange(6, dtype=numpy.float32), numpy.float32([[2, 1], [4, 3]])
    blobs = BlobWriter()
    for array in (packed, packed[None]):
        places = array.astype(numpy.int64)
        view = view_of(places, home.shape)
        assert view is not None
        blobs.add_view(array, home, view)
    for array in (packed, packed[None], packed.reshape(4)):
        made = {"stored": "", "tables": [], "limits": [], "counts": [], "taps": 0, **blobs.array(array)}
        content = [bytes(part) for part in blobs.parts]
        numpy.testing.assert_array_equal(read_array(SimpleNamespace(**made), lambda n: content[n]), array)


def test_plain_forms_of_halves_are_halves(tmp_path: Path) -> None:
    """Plain forms take float weights. Those of a network of halves are in the file once, as halves."""
    x, weights = Tensor.input("x", (1, 12, 9, 10), "float16"), const(64, 12, 3, 3).numpy().astype(numpy.float16)
    prepared = prepare(build_graph({"y": x.conv2d(Tensor.constant(weights))}, [x]), Config(1), DEVICES["small gpu"])
    graph, plan = prepared.graph, prepared.plan()
    made = with_checks(DevicePlan(plan, "d", DEVICES["small gpu"]), graph, Config(1), {})
    save_model(tmp_path / "m", graph, Config(1), [made])
    saved = SavedModel.open(tmp_path / "m")
    spares = [each.content for each in saved.table.plans[0].spare_storages if each.content is not None]
    found = [read_array(each, saved._blob) for each in spares]
    assert any(each.dtype == numpy.float32 and each.size == weights.size for each in found)
    assert any(numpy.array_equal(each.reshape(-1), weights.reshape(-1)) for each in found)
    assert sum(place.bytes for place in saved.table.blobs) <= weights.nbytes + 1024
