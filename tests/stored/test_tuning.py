"""The database of measurements: what is recorded is chosen, for its own device only, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from dataclasses import astuple, replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from graphs import const, target

import imgconv
from imgconv.build_options import BuildOptions
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.choose import ChoiceRequest
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Config
from imgconv.errors import ConfigError, ModelError
from imgconv.kernels.conv import candidates as conv_candidates, problem as conv
from imgconv.kernels.matmul import template as matmul
from imgconv.kernels.template_interface import Choice
from imgconv.kernels.target import LARGE_GPU
from imgconv.kernels.templates import template_of
from imgconv.onnx_import import import_onnx
from imgconv.loading.plans import prepare_for
from imgconv.loading.tuner import ranked_candidates
from imgconv.stored import tuning
from imgconv.stored.tuning import (
    Measurement, TunedChooser, TuningDatabase, default_path, measurement_key, open_tuning_database
)
from imgconv.stored.tuning import _text as stored_text
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parents[2]
PROBLEM = conv.Problem(1, 32, (14, 14), 64, (14, 14), (1, 1), (1, 1), (1, 1), (0, 0), 1)
PRODUCT = matmul.Problem(1, 3, 64, 40)
SLOW, FAST = conv_candidates.candidates(PROBLEM, "gpu")[:2]
HERE = "Vendor | GPU | OpenCL C 1.2 | driver 1"
GPU = target()
NAME = measurement_key(PROBLEM, Config(), GPU)


@pytest.fixture
def database(tmp_path: Path) -> TuningDatabase:
    return TuningDatabase(tmp_path / "m.tuning", new=True)


def choice(database: TuningDatabase, problem: Any, device: str = HERE, config: Config = Config()) -> Choice:
    """Returns the specialisation that is chosen for a GPU of eight compute units."""
    template = template_of(problem)
    request = ChoiceRequest(template, problem, target(compute_units=8), config, "y")
    made = TunedChooser(database, device).choose_specialisation(request)
    assert made is not None
    return made


def chosen(database: TuningDatabase, device: str = HERE, config: Config = Config()) -> conv.Specialisation:
    made = choice(database, PROBLEM, device, config).specialisation
    assert isinstance(made, conv.Specialisation)
    return made


def test_the_fastest_is_chosen(database: TuningDatabase) -> None:
    default = chosen(database)
    assert default == conv_candidates.default_specialisation(PROBLEM, "gpu", 8)
    other = next(c for c in conv_candidates.candidates(PROBLEM, "gpu") if c != default)
    database.record(HERE, NAME, [Measurement(default, 2e-3), Measurement(other, 1e-3)])
    assert chosen(database) == other
    assert database.find(HERE, NAME) == [Measurement(other, 1e-3), Measurement(default, 2e-3)]
    assert choice(database, PROBLEM).seconds == 1e-3 and choice(database, replace(PROBLEM, batch=2)).seconds is None
    database.record(HERE, NAME, [Measurement(default, 0.5e-3), Measurement(other, 9.0)])
    assert chosen(database) == default, "the shorter of two measurements stays"


def test_products_too(database: TuningDatabase) -> None:
    fast = matmul.candidates(PRODUCT, "gpu")[-1]
    database.record(HERE, measurement_key(PRODUCT, Config(), GPU), [Measurement(fast, 1e-3)])
    assert choice(database, PRODUCT).specialisation == fast


@pytest.mark.parametrize("other", ["Vendor | GPU | OpenCL C 1.2 | driver 2", "Vendor | GPU | OpenCL C 3.0 | driver 1"])
def test_another_device_or_driver_is_not_consulted(database: TuningDatabase, other: str) -> None:
    default = chosen(database)
    database.record(HERE, NAME, [Measurement(SLOW if SLOW != default else FAST, 1e-9)])
    assert chosen(database, other) == default
    assert chosen(database, HERE, Config(float16=1)) == default, "half textures are another matter"


def test_what_the_kernels_no_longer_take_is_not_chosen(database: TuningDatabase) -> None:
    database.record(HERE, NAME, [Measurement(replace(SLOW, half_quads=4), 1e-9)])
    assert chosen(database) == conv_candidates.default_specialisation(PROBLEM, "gpu", 8)
    assert choice(database, PROBLEM).seconds is None, "and not said to be"
    with sqlite3.connect(database.path) as connection:
        connection.execute("""UPDATE measured SET specialisation = '{"kernel": "convolution", "unheard_of": 1}'""")
    database.record(HERE, NAME, [Measurement(FAST, 2e-9)])
    assert chosen(database) == FAST and database.find(HERE, NAME) == [Measurement(FAST, 2e-9)], "nor in the way"


# Rows as imgconv 0.1.0 first wrote them: device, problem, specialisation, seconds.
OLD_ROWS = [
    (
        HERE,
        "convolution Problem(batch=1, channels=32, input_size=(14, 14), filters=64, output_size=(14, 14), "
        "window=(1, 1), strides=(1, 1), dilations=(1, 1), pads=(0, 0), groups=1, depthwise=False, phases=(1, 1), "
        "phase_shift=(0, 0), half=False, integers=False) stored as float",
        '{"block_columns": 1, "block_quads": 1, "block_rows": 1, "float_coordinates": true, "half_quads": 0, '
        '"keep": "texel", "kernel": "convolution", "local_size": [2, 32, 2], "parts": 16, "passes": 1, '
        '"staged_input": false, "vector_quads": 1, "weights": "image", "winograd": 0}',
        1e-5,
    ),
    (
        HERE, "product Problem(batch=1, rows=3, inner=64, columns=40) stored as half",
        '{"block_quads": 1, "block_rows": 3, "group_columns": 8, "kernel": "product", "parts": 16}', 2e-5,
    ),
]


def test_old_files_are_read(database: TuningDatabase) -> None:
    """A new field of a problem, or another name of a file of ours, must not lose what users measured."""
    with sqlite3.connect(database.path) as connection:
        connection.executemany("INSERT INTO measured VALUES (?, ?, ?, ?)", OLD_ROWS)
    found = choice(database, PROBLEM)
    wanted = conv.Specialisation(
        1, 1, 1, "texel", "image", (2, 32, 2), parts=16, float_coordinates=True
    )
    assert (found.specialisation, found.seconds) == (wanted, 1e-5)
    assert wanted != chosen(database, "elsewhere"), "the cost model would take another one"
    assert [m.seconds for m in database.find(HERE, NAME)] == [1e-5]
    found = choice(database, PRODUCT, config=Config(float16=1))
    assert (found.specialisation, found.seconds) == (matmul.Specialisation(3, 1, 16, 8), 2e-5)


def test_tiles_of_old_files_are_found(database: TuningDatabase) -> None:
    tiled = next(c for c in matmul.candidates(replace(PRODUCT, rows=64), "gpu", LARGE_GPU) if c.tile_depth)
    problem = measurement_key(replace(PRODUCT, rows=64), Config(), GPU)
    database.record(HERE, problem, [Measurement(tiled, 1e-5)])
    with sqlite3.connect(database.path) as connection:
        text = "replace(specialisation, 'tile_depth', 'staged')"
        assert connection.execute(f"UPDATE measured SET specialisation = {text}").rowcount == 1
    assert database.find(HERE, problem) == [Measurement(tiled, 1e-5)]


def test_half_products_of_old_files_are_summed_in_runs(database: TuningDatabase) -> None:
    problem, half = replace(PROBLEM, sums="runs"), Config(float16=2)
    fast = next(c for c in conv_candidates.candidates(problem, "gpu") if c.half_quads)
    older = measurement_key(problem, half, GPU).replace("sums='runs'", "half=True")
    database.record(HERE, older, [Measurement(fast, 1e-9)])
    assert older != measurement_key(problem, half, GPU) and choice(database, problem, config=half).seconds == 1e-9
    assert database.find(HERE, measurement_key(problem, half, GPU)) == [Measurement(fast, 1e-9)]
    assert choice(database, replace(problem, sums="half"), config=half).seconds is None


def test_verify_and_precision_judge_the_plan_that_load_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: DeviceInfo
) -> None:
    """Both take the measurements beside the model."""
    import imgconv
    from imgconv import cli
    from imgconv.commands import tune, verify

    model = tmp_path / "m.onnx"
    x = Tensor.input("x", (1, 8, 9, 9))
    imgconv.export_onnx(build_graph({"y": x.conv2d(const(8, 8, 3, 3))}, [x]), model)
    prepared = prepare_for(device, import_onnx(model), Config())
    (launch,) = (launch for launch in prepared.plan().launches if launch.specialisation)
    assert launch.choice is not None
    other = ranked_candidates(launch.choice.problem, prepared.target)[-1]
    for config in (Config(), Config(float16=1)):
        name = measurement_key(launch.choice.problem, config, prepared.target)
        TuningDatabase(default_path(model), new=True).record(device.key, name, [Measurement(other, 1e-12)])
    seen: list[Any] = []

    def look(*arguments: Any, **options: Any) -> Any:
        seen.extend(each for each in arguments if isinstance(each, PreparedGraph))
        raise ConfigError("seen")

    monkeypatch.setattr(verify, "verify", look)
    monkeypatch.setattr(tune, "choose_precision", look)
    monkeypatch.setenv("IMGCONV_DEVICE", str(device.index))
    assert cli.main(["verify", str(model)]) == cli.main(["tune", "--precision", str(model)]) == 1
    expected = imgconv.load(model, device).plan
    for each in seen:
        plans = str(each.plan(Config())), str(expected)
        assert plans[0] == plans[1] and str(other) in plans[0]
    assert len(seen) == 2


def test_merging_keeps_the_shorter(database: TuningDatabase, tmp_path: Path) -> None:
    other = TuningDatabase(tmp_path / "other", new=True)
    database.record(HERE, NAME, [Measurement(SLOW, 3e-3), Measurement(FAST, 2e-3)])
    other.record(HERE, NAME, [Measurement(SLOW, 1e-3), Measurement(FAST, 9e-3)])
    other.record("elsewhere", NAME, [Measurement(SLOW, 1e-3)])
    for _ in range(2):
        database.merge(other.path)
        assert database.find(HERE, NAME) == [Measurement(SLOW, 1e-3), Measurement(FAST, 2e-3)]
        assert database.find("elsewhere", NAME) == [Measurement(SLOW, 1e-3)]
    with pytest.raises(ConfigError, match="no tuning file .*none"):
        database.merge(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_build_options_of_a_device_and_settings(database: TuningDatabase, tmp_path: Path) -> None:
    half, full = BuildOptions("half", "on", True), BuildOptions("full")
    assert database.build_options(HERE, Config()) == BuildOptions(), "an older file lacks the table"
    database.record_build_options(HERE, Config(), full)
    database.record_build_options(HERE, Config(), half)
    assert TuningDatabase(database.path).build_options(HERE, Config()) == half, "the last ones count"
    for device, config in ((HERE, Config(float16=1)), ("elsewhere", Config())):
        assert database.build_options(device, config) == BuildOptions()
    other = TuningDatabase(tmp_path / "other", new=True)
    other.merge(database.path)
    assert other.build_options(HERE, Config()) == BuildOptions(), "another model may be slower with them"


@pytest.mark.parametrize("row", ["", "[]", "[" * 9999, '{"wave_size": "no"}', '{"new": 1}', '{"wave_size": []}', 7])
def test_build_options_that_nobody_writes_are_ignored(row: Any, database: TuningDatabase) -> None:
    database.record_build_options(HERE, Config(), BuildOptions("half"))
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE build_options SET options = ?", (row,))
    assert database.build_options(HERE, Config()) == BuildOptions()


def test_damaged_and_foreign_files(database: TuningDatabase, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database" * 99)
    with pytest.raises(ConfigError, match="text.* is not a tuning file, is corrupt"):
        TuningDatabase(tmp_path / "text")
    (tmp_path / "table").write_bytes(database.path.read_bytes().replace(b"CREATE TABLE", b"CREATE TAB\x80E"))
    with pytest.raises(ConfigError, match="table.* is corrupt"):  # sqlite's own message is not UTF-8
        TuningDatabase(tmp_path / "table").best("a device")
    with sqlite3.connect(database.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="version 99 where this imgconv reads 1: .*tune again"):
        TuningDatabase(database.path)
    with sqlite3.connect(tmp_path / "foreign") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = (tmp_path / "foreign").read_bytes()
    with pytest.raises(ConfigError, match="foreign' is not a tuning file"):
        database.merge(tmp_path / "foreign")
    assert (tmp_path / "foreign").read_bytes() == before
    with pytest.raises(ConfigError, match="there is no tuning file .*none"):
        TuningDatabase(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_there_is_only_read(database: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads need no lock and write nothing: the folder may be read-only, or another process may write to the file."""
    database.record(HERE, NAME, [Measurement(SLOW, 1e-3)])
    before = os.stat(database.path).st_mtime_ns
    monkeypatch.setattr(tuning, "PATIENCE", 0.0)  # it would fail at once if it had to wait for the other one
    with sqlite3.connect(database.path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert TuningDatabase(database.path).best(HERE) == {NAME: Measurement(SLOW, 1e-3)}
    assert os.stat(database.path).st_mtime_ns == before


# What a row may say, of anybody's making: text in place of a specialisation, and other values in one.
TEXTS = ["", "[]", "null", "{", "[" * 10_000, "7", '{"kernel": []}', '{"kernel": "convolution"}', '{"kernel": {}}']
VALUES = [-1, 0, 2**40, 1.5, "1", "1; }", None, [], [1], [1, 2, 3, 4], True, {}, "x" * 100]


def test_a_row_that_is_no_candidate_is_not_used(database: TuningDatabase) -> None:
    """Else passes=-1 is a kernel that writes outside of its texture."""
    usual = chosen(database)
    rows = [*TEXTS, None, 7, b"bytes"]
    whole = json.loads(stored_text(FAST if FAST != usual else SLOW))
    rows += [json.dumps({**whole, field: value}) for field in whole for value in VALUES if whole[field] != value]
    with sqlite3.connect(database.path) as connection:
        connection.executemany("INSERT OR IGNORE INTO measured VALUES (?, ?, ?, ?)", [
            (HERE, NAME, row, 1e-9) for row in rows if row is not None
        ])
    made = choice(database, PROBLEM)
    known = conv_candidates.candidates(PROBLEM, "gpu") + conv_candidates.candidates(PROBLEM, "gpu", 8)
    assert made.specialisation in known and all(
        type(a) is type(b) for c in known if c == made.specialisation
        for a, b in zip(astuple(made.specialisation), astuple(c), strict=True)
    )
    database.find(HERE, NAME)


@pytest.mark.parametrize("seconds", ["fast", -1.0, 0.0, None, b"x"])
def test_a_time_that_is_none(database: TuningDatabase, seconds: Any) -> None:
    with sqlite3.connect(database.path) as connection:
        connection.execute("INSERT INTO measured VALUES (?, ?, ?, ?)", (HERE, NAME, stored_text(SLOW), seconds))
    assert database.find(HERE, NAME) == [] and choice(database, PROBLEM).seconds is None


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "m.tuning"
    code = (
        "import resource, sys\nfrom imgconv.stored.tuning import TuningDatabase\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nTuningDatabase(sys.argv[1], new=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ConfigError" in done.stderr and "cannot be used" in done.stderr
    assert not path.exists()


@pytest.mark.parametrize("model", ["", ".", "/", ".."])
def test_a_path_without_a_name_has_no_file_beside_it(model: str) -> None:
    assert open_tuning_database(model) is None
    with pytest.raises(ModelError, match="cannot read the file"):
        imgconv.load(model)


def test_the_file_beside_a_model(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    assert default_path(model) == tmp_path / "m.tuning"
    assert open_tuning_database(model) is None and open_tuning_database(object()) is None
    TuningDatabase(default_path(model), new=True)
    assert open_tuning_database(str(model)) is not None


WRITER = """
    import sys
    sys.path[:0] = {path!r}
    from test_tuning import NAME, SLOW, Measurement, TuningDatabase
    print("ready", flush=True)
    for number in range({count}):
        TuningDatabase({file!r}).record({device!r}, NAME + str(number), [Measurement(SLOW, 1e-3)])
"""


def writer(database: TuningDatabase, device: str, count: int) -> subprocess.Popen[bytes]:
    path = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "stored"), str(ROOT / "tests" / "device")]
    script = textwrap.dedent(WRITER).format(path=path, file=str(database.path), device=device, count=count)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)


def test_two_processes_write_at_once(database: TuningDatabase) -> None:
    processes = [writer(database, device, 40) for device in ("one", "two")]
    assert [process.wait() for process in processes] == [0, 0]
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
    assert len(database.best("one")) == len(database.best("two")) == 40


def test_a_kill_leaves_the_file_whole(database: TuningDatabase) -> None:
    database.record(HERE, NAME, [Measurement(SLOW, 1e-3)])
    with writer(database, "one", 10_000) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
    assert database.find(HERE, NAME) == [Measurement(SLOW, 1e-3)]
    with sqlite3.connect(database.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_groups_that_stage_the_input_of_a_product_are_two_items_wide() -> None:
    """The groups are two work items wide where that leaves none idle."""
    large = conv.Problem(1, 256, (256, 256), 256, (256, 256), (1, 1), (1, 1), (1, 1), (0, 0), 1)
    groups = [c.local_size or () for c in conv_candidates.candidates(large, "gpu") if c.weights == "local"]
    assert groups and all(group[0] == 2 and prod(group) == 128 for group in groups)
