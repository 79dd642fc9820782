"""The player under the sanitizers, and its reader with damaged files; `make native-check` runs it. It takes minutes.

It builds the player anew for each sanitizer. Drivers are not instrumented, so that the thread sanitizer leaves out what
they do, and the address sanitizer their leaks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from zlib import crc32

import numpy
import pytest
from graphs import Taking, const, numbers
from snapshots import DEVICES

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.compiler import prepare
from imgconv.config import Config
from imgconv.files.container import ALIGNMENT, MAGIC, PLAIN, START, ContainerFile
from imgconv.kernels.winograd.problem import Specialisation
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model
from imgconv.tensor import Tensor, build_graph

X = numbers(1, 3, 9, 7)
NATIVE = Path(__file__).parent.parent.parent / "native"
SANITIZERS = ("address,undefined", "thread")
FILES, SEEDS = 50_000, (0, 1)
# A file of 160 KB. The address sanitizer itself takes most of it.
MOST_MEGABYTES = 600


@pytest.fixture(scope="module")
def path(device: DeviceInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with an output of each kind."""
    x = Tensor.input("x", X.shape)
    y = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    graph = build_graph({"y": y.max_pool(2, 2), "labels": Tensor.constant(numpy.arange(5))}, [x])
    made = tmp_path_factory.mktemp("saved") / "m.imgconv"
    imgconv.load(graph, device=device).save(made, targets=[device])
    return made


@pytest.fixture(scope="module")
def uncompressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose head is not compressed: a changed byte is a changed number. It has views of weights and of taps."""
    x = Tensor.input("x", (1, 12, 9, 10))
    y = x.conv2d(const(46, 12, 3, 3), padding=1).conv2d(const(6, 46, 1, 1), const(6)).relu()
    graph = build_graph({"y": y, "labels": Tensor.constant(numpy.arange(5))}, [x])
    target, chooser = DEVICES["small gpu"], Taking(winograd2d=lambda *_: Specialisation((8, 4, 1)))
    prepared = prepare(graph, Config(1), target, chooser)
    folder = tmp_path_factory.mktemp("uncompressed")
    save_model(folder / "c", prepared.graph, Config(1), [DevicePlan(prepared.plan(), "phone", target)])
    contents = [each.content for each in SavedModel.open(folder / "c").table.plans[0].storages if each.content]
    assert any(each.taps for each in contents) and any(len(each.tables) and not each.taps for each in contents)
    whole, head = (folder / "c").read_bytes(), ContainerFile(folder / "c").head
    blobs = whole[aligned(ALIGNMENT + START.unpack_from(whole)[3]) :]
    start = START.pack(MAGIC, PLAIN, crc32(head), len(head)).ljust(ALIGNMENT, b"\0")
    (folder / "m").write_bytes((start + head).ljust(aligned(ALIGNMENT + len(head)), b"\0") + blobs)
    return folder / "m"


def aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def build(folder: Path, target: str, *settings: str) -> Path:
    configure = ["cmake", "-S", NATIVE, "-B", folder, *settings]
    for command in configure, ["cmake", "--build", folder, "--parallel", "2", "--target", target]:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / target


def run(*command: object, **variables: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **variables}, timeout=1200
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-8000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_all_of_it_from_threads(
    device: DeviceInfo, path: Path, environment: dict[str, str], built: Path, tmp_path: Path, sanitizer: str
) -> None:
    program = build(built.parent / f"native-{sanitizer.partition(',')[0]}", "imgconv-check", f"-DSANITIZE={sanitizer}")
    (tmp_path / "programs").mkdir()
    options = {
        "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",
    }
    for _ in range(2):  # compiled, and from the folder
        run("setarch", "-R", program, path, device.index, tmp_path / "programs", **environment, **options)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_files(uncompressed: Path, built: Path, seed: int) -> None:
    program = build(built.parent / "native-address", "fuzz-reader", f"-DSANITIZE={SANITIZERS[0]}")
    text = run(program, uncompressed, FILES, seed)
    print(f"\nseed {seed}: {text}")
    assert int(text.split()[-2]) <= MOST_MEGABYTES


def test_libfuzzer(uncompressed: Path, built: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.cpp").write_text('extern "C" int LLVMFuzzerTestOneInput(const char *, long) { return 0; }\n')
    link = ["clang++", "-fsanitize=fuzzer,address", "-o", tmp_path / "empty", tmp_path / "empty.cpp"]
    if shutil.which("clang++") is None or subprocess.run(link, capture_output=True).returncode:
        pytest.skip("clang++ with its runtime, Debian's clang and libclang-rt-14-dev, is not installed")
    settings = f"-DSANITIZE={SANITIZERS[0]}", "-DLIBFUZZER=ON", "-DCMAKE_CXX_COMPILER=clang++"
    program = build(built.parent / "native-libfuzzer", "fuzz-reader", *settings)
    (tmp_path / "corpus").mkdir()
    shutil.copy(uncompressed, tmp_path / "corpus" / "m")
    limits = "-runs=200000", "-max_total_time=120", "-timeout=5", f"-rss_limit_mb={MOST_MEGABYTES}", "-seed=1"
    text = run(program, *limits, f"-max_len={2 * uncompressed.stat().st_size}", tmp_path / "corpus")
    print("\n" + text.strip().splitlines()[-1])
