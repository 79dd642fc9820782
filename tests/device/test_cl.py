"""imgconv.cl: choosing a device, images, programs, launches."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from imgconv.cl import device as device_module
from imgconv.cl import image, program, queue
from imgconv.cl.device import Context, DeviceInfo, default_device, no_driver_message, open_device, select
from imgconv.cl.loader import new_context
from imgconv.errors import BuildError, DeviceError, InputError, ResourceError
from imgconv.kernels.source import COMMON

SIZES = [(1, 1), (3, 5), (17, 33)]
LAYERS = [0, 1, 3]
DTYPES = [np.float32, np.float16]

SAMPLER = "constant sampler_t SAMPLER = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"

READ_AROUND = (
    SAMPLER
    + """
kernel void single(read_only image2d_t source, write_only image2d_t destination) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(destination, at, read_imagef(source, SAMPLER, at - 2));
}
kernel void layered(read_only image2d_array_t source, write_only image2d_array_t destination) {
  int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
  write_imagef(destination, at, read_imagef(source, SAMPLER, at - (int4)(2, 2, 0, 0)));
}
"""
)

ADD = """
kernel void add(global float *values, float amount) {
  values[get_global_id(0)] += amount;
}
kernel void double_all(global float *values) {
  values[get_global_id(0)] *= 2.0f;
}
"""

BROKEN = "\n".join(["kernel void broken(global float *values) {", "  values[0] = 1.0f;", "  values[1] = missing;", "}"])


def random_texels(shape: tuple[int, ...], dtype: type[np.floating]) -> np.ndarray:
    return np.random.default_rng(7).uniform(-100, 100, shape).astype(dtype)


def uploaded(
    context: Context, width: int, height: int, layers: int, dtype: type[np.floating]
) -> tuple[cl.Image, np.ndarray]:
    created = image.create_image(context, width, height, layers, dtype)
    array = random_texels(image.image_shape(created), dtype)
    image.upload(context, created, array)
    return created, array


# Choosing a device


def fabricated(index: int, kind: str, name: str, **changes: object) -> DeviceInfo:
    values = {field.name: 0 for field in dataclasses.fields(DeviceInfo)}
    texts = {"platform": "Fabric", "vendor": "", "driver_version": "1", "opencl_version": "", "opencl_c_version": ""}
    lists = {"max_work_item_sizes": (), "extensions": (), "float_images": True}
    return DeviceInfo(**{**values, **texts, **lists, "index": index, "kind": kind, "name": name, **changes})  # type: ignore[arg-type]


CPU = fabricated(0, "cpu", "Slow Core")
GPU = fabricated(1, "gpu", "QUALCOMM Adreno(TM)", platform="QUALCOMM", opencl_c_version="OpenCL C 2.0 Adreno(TM) 640")
OTHER_GPU = fabricated(2, "gpu", "Mali-G615", platform="ARM Platform")
THREE = (CPU, GPU, OTHER_GPU)


def test_default_is_the_first_gpu() -> None:
    assert default_device(THREE) is GPU
    assert default_device((OTHER_GPU, GPU, CPU)) is GPU
    assert default_device((CPU,)) is CPU
    assert select(None, THREE) is GPU


def test_default_has_float_images() -> None:
    assert default_device((CPU, dataclasses.replace(GPU, float_images=False))) is CPU


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (0, CPU),
        (2, OTHER_GPU),
        ("1", GPU),
        (" 2 ", OTHER_GPU),
        ("mali", OTHER_GPU),
        ("SLOW", CPU),
        ("qualcomm", GPU),
        ("640", None),
    ],
)
def test_select_by_index_or_name(choice: str | int, chosen: DeviceInfo | None) -> None:
    if chosen is None:
        with pytest.raises(DeviceError):
            select(choice, THREE)
    else:
        assert select(choice, THREE) is chosen


def test_select_tells_adrenos_apart() -> None:
    newer = dataclasses.replace(GPU, index=3, opencl_c_version="OpenCL C 3.0 Adreno(TM) 740")
    assert select("adreno(tm) 740", (*THREE, newer)) is newer
    assert newer.key != GPU.key


@pytest.mark.parametrize("choice", ["nvidia", 3, -1, "7"])
def test_unknown_choice_lists_every_device(choice: str | int) -> None:
    with pytest.raises(DeviceError) as caught:
        select(choice, THREE)
    message = str(caught.value)
    assert "no OpenCL device fits" in message
    assert repr(choice) in message
    assert all(str(device) in message for device in THREE)


def test_ambiguous_choice_lists_what_fits() -> None:
    with pytest.raises(DeviceError) as caught:
        select("ar", (CPU, OTHER_GPU, dataclasses.replace(OTHER_GPU, index=5)))
    message = str(caught.value)
    assert "more than one" in message
    assert "[2]" in message
    assert "[5]" in message
    assert "Slow Core" not in message


def test_no_device_says_what_to_install() -> None:
    for choice in (None, 0, "gpu"):
        with pytest.raises(DeviceError, match="no OpenCL driver found"):
            select(choice, ())


@pytest.mark.parametrize(
    ("system", "machine", "android", "parts"),
    [
        ("linux", "x86_64", False, ["pip install intel-opencl-rt intel-cmplr-lib-rt", "pocl-opencl-icd"]),
        ("linux", "aarch64", False, ["vendor's libOpenCL", "pocl-opencl-icd"]),
        ("linux", "aarch64", True, ["Termux", "LD_LIBRARY_PATH=/vendor/lib64", "pkg install ocl-icd"]),
        ("android", "aarch64", True, ["Termux", "LD_LIBRARY_PATH=/vendor/lib64"]),
        ("darwin", "arm64", False, ["macOS", "pocl"]),
        ("win32", "AMD64", False, ["vendor's driver"]),
    ],
)
def test_advice_fits_the_machine(system: str, machine: str, android: bool, parts: list[str]) -> None:
    message = no_driver_message(system, machine, android)
    assert system in message
    assert all(part in message for part in parts)
    if machine == "aarch64":
        assert "intel" not in message


# Finding drivers


def run_python(code: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in device_module.LOADER_VARIABLES}
    kept["PYTHONPATH"] = os.pathsep.join([str(Path(device_module.__file__).parents[2]), kept.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LIST = """
import json, os
from imgconv.cl.device import list_devices
first = [device.platform for device in list_devices()]
assert first == [device.platform for device in list_devices()]
assert "OCL_ICD_VENDORS" not in os.environ
print(json.dumps(first))
"""


def pip_driver_installed() -> bool:
    try:
        return bool(metadata.files("intel-opencl-rt"))
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not pip_driver_installed(), reason="intel-opencl-rt is not installed here")
def test_finds_the_driver_that_pip_installed_beside_the_system_ones() -> None:
    found = json.loads(run_python(LIST))
    assert "Intel(R) OpenCL" in found
    if Path("/etc/OpenCL/vendors/pocl.icd").exists():
        assert "Portable Computing Language" in found


@pytest.mark.skipif(not pip_driver_installed(), reason="intel-opencl-rt is not installed here")
def test_a_driver_that_the_environment_adds_hides_no_other(tmp_path: Path) -> None:
    """Intel's oneAPI sets OCL_ICD_FILENAMES for its own driver."""
    found = json.loads(run_python(LIST, OCL_ICD_FILENAMES=str(tmp_path / "libother.so")))
    assert "Intel(R) OpenCL" in found


def test_threads_that_look_for_drivers_at_once() -> None:
    at_once = """
import os
from concurrent.futures import ThreadPoolExecutor
from imgconv.cl import device
device._unregistered_drivers = lambda: ["libabsent.so.1"]
with ThreadPoolExecutor(8) as pool:
    found = [*pool.map(lambda _: device.list_devices(), range(24))]
assert all(each == found[0] for each in found), found
assert "OCL_ICD_VENDORS" not in os.environ
"""
    run_python(at_once)


def test_uses_what_is_there_after_pyopencl_was_used() -> None:
    used_before = """
import pyopencl
try:
    before = sorted(platform.name for platform in pyopencl.get_platforms())
except pyopencl.Error:
    before = []
from imgconv.cl.device import list_devices
assert sorted({device.platform for device in list_devices()}) == before, before
"""
    run_python(used_before)


def test_respects_the_loader_variables_and_reports_no_driver(tmp_path: Path) -> None:
    nothing_there = """
import os
from imgconv.cl.device import list_devices, select
from imgconv.errors import DeviceError
chosen = os.environ["OCL_ICD_VENDORS"]
assert list_devices() == ()
assert os.environ["OCL_ICD_VENDORS"] == chosen
try:
    select()
except DeviceError as error:
    print(error)
"""
    assert "no OpenCL driver found" in run_python(nothing_there, OCL_ICD_VENDORS=str(tmp_path))


def test_registered_drivers_leaves_out_paths_without_a_file(tmp_path: Path) -> None:
    library = tmp_path / "libreal.so"
    library.touch()
    lines = {
        "a": f"{library}\n",
        "b": "/opt/placeholder/libintelocl.so",
        "c": "libnamed.so.1",
        "d": "libnamed.so.1\n",
        "e": "",
    }
    for name, line in lines.items():
        (tmp_path / f"{name}.icd").write_text(line)
    (tmp_path / "bytes.icd").write_bytes(b"/opt/\xff.so")
    (tmp_path / "folder.icd").mkdir()
    assert device_module._registered_drivers([tmp_path, tmp_path / "absent"]) == [str(library), "libnamed.so.1"]


def test_loader_variable_is_set_for_the_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in device_module.LOADER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device_module, "_registered_drivers", lambda folders: ["libold.so"])
    monkeypatch.setattr(device_module, "_unregistered_drivers", lambda: ["/here/libold.so", "/here/libnew.so"])
    with device_module._unregistered_drivers_visible():
        folder = Path(os.environ["OCL_ICD_VENDORS"])
        assert sorted(file.read_text() for file in folder.glob("*.icd")) == ["/here/libnew.so\n", "libold.so\n"]
    assert "OCL_ICD_VENDORS" not in os.environ
    assert not folder.exists()


@pytest.mark.parametrize("layers", [1, 3])
def test_an_image_is_an_array_by_its_type(layers: int) -> None:
    """Mesa's rusticl says of a plain image that it has one layer."""
    kind = cl.mem_object_type.IMAGE2D_ARRAY if layers > 1 else cl.mem_object_type.IMAGE2D
    answers: Any = SimpleNamespace(type=kind, width=5, height=4, array_size=layers)
    assert image.image_shape(answers) == ((layers, 4, 5, 4) if layers > 1 else (4, 5, 4))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="drivers register themselves elsewhere")
def test_finds_a_driver_that_no_file_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "NVIDIA_DRIVER", "libabsent.so.1")
    assert "libabsent.so.1" not in device_module._unregistered_drivers()
    monkeypatch.setattr(device_module, "NVIDIA_DRIVER", "libc.so.6")
    assert "libc.so.6" in device_module._unregistered_drivers()


def test_missing_pyopencl_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match="pyopencl cannot be imported"):
        device_module.list_devices()


# Devices


def test_device_is_described(device: DeviceInfo) -> None:
    assert device.kind in ("gpu", "cpu", "accelerator")
    for field in ("platform", "name", "driver_version", "opencl_c_version"):
        assert getattr(device, field) in device.key
    assert min(device.max_image_width, device.max_image_height) >= 2048
    assert device.max_read_images >= 8
    assert device.max_write_images >= 8
    assert device.float_images
    assert device.fp16_arithmetic == ("cl_khr_fp16" in device.extensions)
    assert json.loads(json.dumps(dataclasses.asdict(device)))["index"] == device.index
    assert select(device.index) == device


def test_stale_device_is_refused(device: DeviceInfo) -> None:
    for changes in ({"index": 99}, {"name": "gone"}):
        with pytest.raises(DeviceError, match="not there any more"):
            open_device(dataclasses.replace(device, **changes))


def test_device_without_float_images_is_refused(device: DeviceInfo) -> None:
    with pytest.raises(DeviceError, match="RGBA float images"):
        open_device(dataclasses.replace(device, float_images=False))


def test_a_device_has_one_context(device: DeviceInfo) -> None:
    one, other = open_device(device), open_device(device, profile=True)
    assert one.handle == other.handle and one.queue != other.queue


class Adreno:
    """A device of a made-up driver that has hints."""

    extensions = "cl_khr_fp16 cl_qcom_perf_hint cl_qcom_priority_hint"
    int_ptr = 17
    platform = SimpleNamespace(int_ptr=23)


@pytest.mark.parametrize("refused", [False, True])
def test_performance_hint(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    """Asked for where the driver names the extension; a context without it where the driver refuses all the same."""
    asked: list[object] = []

    def new_context(device: object, properties: object) -> int:
        asked.append(properties)
        return 0 if refused else 5

    made = SimpleNamespace(from_int_ptr=lambda number, retain: ("hinted", number, retain))
    plain = type("Context", (), {"__new__": lambda cls, devices: "plain", **vars(made)})
    monkeypatch.setattr(device_module, "new_context", new_context)
    monkeypatch.setattr(cl, "Context", plain)
    # CL_CONTEXT_PLATFORM; CL_CONTEXT_PERF_HINT_QCOM and CL_PERF_HINT_HIGH_QCOM of cl_ext_qcom.h.
    assert device_module._new_handle(Adreno()) == ("plain" if refused else ("hinted", 5, False))
    assert asked == [[(0x1084, 23), (0x40C2, 0x40C3)]]
    asked.clear()
    monkeypatch.setattr(Adreno, "extensions", "cl_khr_fp16")
    assert device_module._new_handle(Adreno()) == "plain" and asked == []


def test_contexts_with_properties(context: Context) -> None:
    """Of the drivers here: one that they know, and one that they do not."""
    device = context.handle.devices[0]
    number = new_context(device, [(device_module.CONTEXT_PLATFORM, device.platform.int_ptr)])
    assert number
    made = cl.Context.from_int_ptr(number, retain=False)
    assert made.devices == [device] and made != context.handle
    cl.CommandQueue(made, device).finish()
    assert new_context(device, [(0x40C2, 0x40C3)]) == 0


# Images


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_round_trip(context: Context, width: int, height: int, layers: int, dtype: type[np.floating]) -> None:
    created, array = uploaded(context, width, height, layers, dtype)
    assert array.shape == ((layers, height, width, 4) if layers > 1 else (height, width, 4))
    assert image.image_dtype(created) == dtype
    result = image.download(context, created)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)


def test_upload_takes_any_memory_order(context: Context) -> None:
    created = image.create_image(context, 3, 5, 0, np.float32)
    array = np.asfortranarray(random_texels((5, 3, 4), np.float32))
    image.upload(context, created, array)
    np.testing.assert_array_equal(image.download(context, created), array)


def test_upload_refuses_another_shape_or_dtype(context: Context) -> None:
    created = image.create_image(context, 3, 5, 0, np.float32)
    for shape, dtype in (((3, 5, 4), np.float32), ((5, 3), np.float32), ((5, 3, 4), np.float16)):
        with pytest.raises(InputError, match="does not fit"):
            image.upload(context, created, np.zeros(shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", [0, 3])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_reads_outside_give_zero(
    context: Context, width: int, height: int, layers: int, dtype: type[np.floating]
) -> None:
    source, array = uploaded(context, width, height, layers, dtype)
    destination, _ = uploaded(context, width + 4, height + 4, layers, dtype)
    built = program.build(context, READ_AROUND, "read_around.cl")
    launch = program.kernel(built, "layered" if layers else "single")
    launch.set_args(source, destination)
    queue.enqueue(context, launch, (width + 4, height + 4, max(1, layers)))
    border = [(0, 0)] * (array.ndim - 3) + [(2, 2), (2, 2), (0, 0)]
    np.testing.assert_array_equal(image.download(context, destination), np.pad(array, border))


def test_half_overflows_to_infinity_or_the_largest_half(context: Context) -> None:
    source = image.create_image(context, 1, 1, 0, np.float32)
    destination = image.create_image(context, 5, 5, 0, np.float16)
    image.upload(context, source, np.array([[[70000.0, -70000.0, 65504.0, 0.5]]], np.float32))
    launch = program.kernel(program.build(context, READ_AROUND, "read_around.cl"), "single")
    launch.set_args(source, destination)
    queue.enqueue(context, launch, (5, 5))
    written = image.download(context, destination)[2, 2]
    # OpenCL lets a driver round to the nearest half or towards zero; 65504 is the largest.
    assert written[0] in (np.inf, 65504.0) and written[1] == -written[0]
    np.testing.assert_array_equal(written[2:], [65504.0, 0.5])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", [0, 3])
def test_fill_region(context: Context, layers: int, dtype: type[np.floating]) -> None:
    created, expected = uploaded(context, 17, 33, layers, dtype)
    rgba = (1.5, -2.0, 0.25, 4.0)
    if layers:
        image.fill(context, created, rgba, (3, 4, 1), (5, 6, 2))
        expected[1:3, 4:10, 3:8] = rgba
    else:
        image.fill(context, created, rgba, (3, 4), (5, 6))
        expected[4:10, 3:8] = rgba
    np.testing.assert_array_equal(image.download(context, created), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", LAYERS)
def test_fill_whole_and_allocate(context: Context, layers: int, dtype: type[np.floating]) -> None:
    created, array = uploaded(context, 3, 5, layers, dtype)
    image.fill(context, created, (1, 2, 3, 4))
    np.testing.assert_array_equal(image.download(context, created), np.broadcast_to([1, 2, 3, 4], array.shape))
    image.allocate(context, created)
    assert not image.download(context, created).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_region(context: Context, dtype: type[np.floating]) -> None:
    source, array = uploaded(context, 17, 33, 0, dtype)
    destination = image.create_image(context, 9, 11, 0, dtype)
    image.fill(context, destination, (0, 0, 0, 0))
    image.copy_region(context, source, destination, (2, 3), (1, 4), (7, 5))
    expected = np.zeros((11, 9, 4), dtype)
    expected[4:9, 1:8] = array[3:8, 2:9]
    np.testing.assert_array_equal(image.download(context, destination), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_region_between_layers(context: Context, dtype: type[np.floating]) -> None:
    source, array = uploaded(context, 7, 5, 3, dtype)
    destination, expected = uploaded(context, 5, 9, 2, dtype)
    image.copy_region(context, source, destination, (2, 1, 1), (1, 3, 0), (4, 3, 2))
    expected[0:2, 3:6, 1:5] = array[1:3, 1:4, 2:6]
    np.testing.assert_array_equal(image.download(context, destination), expected)


def test_copy_outside_is_refused(context: Context) -> None:
    source, _ = uploaded(context, 3, 5, 0, np.float32)
    destination, _ = uploaded(context, 3, 5, 0, np.float32)
    with pytest.raises(DeviceError, match="3x5 texels, float32"):
        image.copy_region(context, source, destination, (0, 0), (1, 1), (3, 5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_mapped(context: Context, width: int, height: int, layers: int, dtype: type[np.floating]) -> None:
    created, expected = uploaded(context, width, height, layers, dtype)
    with image.mapped(context, created) as array:
        np.testing.assert_array_equal(array, expected)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with image.mapped(context, created, write=True) as array:
        array[..., -1, -1, 2] = 12.5
        array[..., 0, 0, 1] = -3.0
    expected[..., -1, -1, 2] = 12.5
    expected[..., 0, 0, 1] = -3.0
    np.testing.assert_array_equal(image.download(context, created), expected)


def test_image_past_the_limit_names_tensor_shape_and_limit(context: Context) -> None:
    width = context.info.max_image_width + 1
    with pytest.raises(ResourceError) as caught:
        image.create_image(context, width, 2, 0, np.float16, "mask")
    assert caught.value.tensor == "mask"
    assert caught.value.shape == (2, width, 4)
    for part in ("mask", f"{width}x2", "float16", f"{width - 1}x{context.info.max_image_height}"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("width", "height", "layers"), [(0, 1, 0), (1, 0, 0), (1, 2**20, 0), (1, 1, 2**20)])
def test_impossible_sizes_are_refused(context: Context, width: int, height: int, layers: int) -> None:
    with pytest.raises(ResourceError, match="not possible"):
        image.create_image(context, width, height, layers, np.float32)


def test_dtype_without_images_is_refused(context: Context) -> None:
    with pytest.raises(ResourceError, match=r"no RGBA images of int32.*float32"):
        image.create_image(context, 1, 1, 0, np.int32)
    without_half = dataclasses.replace(context, info=dataclasses.replace(context.info, half_images=False))
    with pytest.raises(ResourceError, match="no RGBA images of float16"):
        image.create_image(without_half, 1, 1, 0, np.float16)


def test_more_than_all_memory_is_a_resource_error(context: Context) -> None:
    info = context.info
    with pytest.raises(ResourceError) as caught:
        largest = (info.max_image_width, info.max_image_height, info.max_image_layers)
        image.allocate(context, image.create_image(context, *largest, np.float32, "vast"), "vast")
    assert "vast" in str(caught.value)
    assert str(info.global_memory_bytes) in caught.value.limit


# Buffers


@pytest.mark.parametrize("dtype", [*DTYPES, np.int32])
def test_buffer_round_trip(context: Context, dtype: type[np.generic]) -> None:
    array = np.arange(15).reshape(3, 5).astype(dtype)
    buffer = image.create_buffer(context, array.T)
    np.testing.assert_array_equal(image.download_buffer(context, buffer, (5, 3), dtype), array.T)


def test_buffer_sizes_are_checked(context: Context) -> None:
    buffer = image.create_buffer(context, 16)
    with pytest.raises(InputError, match="20 bytes"):
        image.download_buffer(context, buffer, (5,), np.float32)
    for size in (0, context.info.max_allocation_bytes + 1):
        with pytest.raises(ResourceError, match="'weights'"):
            image.create_buffer(context, size, "weights")


# Programs and launches


def test_build_error_shows_source_log_and_lines(context: Context) -> None:
    with pytest.raises(BuildError) as caught:
        program.build(context, BROKEN, "kernels/broken.cl", ["-DSIZE=3"])
    error = caught.value
    assert error.source == "kernels/broken.cl"
    assert "missing" in error.log
    assert ">    3 |   values[1] = missing;" in error.excerpt
    assert "     2 |   values[0] = 1.0f;" in error.excerpt
    for part in (error.source, error.log, error.excerpt):
        assert part in str(error)


def test_source_near_errors_reads_every_log_style() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 21))
    logs = [
        "<kernel>:9:3: error: no",
        "1:9:3: error: no",
        "error: /tmp/x.cl:9:3: no",
        "<source>:9:3: fatal error: no",
        "note\n<kernel>:2:1: warning: hm\n<kernel>:9:3: error: no",
    ]
    for log in logs:
        lines = program.source_near_errors(source, log).splitlines()
        assert [line.partition(" | ")[2] for line in lines] == [f"line {number}" for number in range(7, 12)], log
        assert [line for line in lines if line.startswith(">")] == [">    9 | line 9"]
    assert program.source_near_errors(source, "internal failure") == ""
    assert program.source_near_errors(source, "<kernel>:99:1: error: past the end") == ""


def test_options_reach_the_compiler(context: Context) -> None:
    source = "kernel void store(global float *values) { values[0] = AMOUNT; }"
    launch = program.kernel(program.build(context, source, "store.cl", ["-DAMOUNT=2.5f"]), "store")
    buffer = image.create_buffer(context, 4)
    launch.set_args(buffer)
    queue.enqueue(context, launch, (1,))
    assert image.download_buffer(context, buffer, (1,), np.float32) == 2.5


def test_threads_take_turns_at_a_compiler_that_needs_it(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, original = [0], [0], cl.Program.build

    def slow(self: cl.Program, *arguments: Any, **options: Any) -> cl.Program:
        running[0] += 1
        most[0] = max(most[0], running[0])
        sleep(0.05)
        running[0] -= 1
        return original(self, *arguments, **options)

    monkeypatch.setattr(cl.Program, "build", slow)
    source = "__kernel void turn(__global float *x) {{ x[0] = {}.0f; }}"
    parts = [program.Part(source.format(n), "turn") for n in range(4)]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda some: list(program.build_all(context, some)), (parts[:2], parts[2:])))
    assert [len(some) for some in made] == [2, 2]
    assert (most[0] == 1) == (context.info.platform in program.ONE_AT_A_TIME)


def test_chatty_builds_stay_quiet_and_filters_stay(context: Context) -> None:
    source = '#warning "compiled"\nkernel void chatty(global float *values) { int unused; values[0] = 1; }'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        built = program.build(context, source, "chatty.cl")
        for _ in range(3):
            program.kernel(built, "chatty")
        assert warnings.filters == filters


def test_unknown_kernel_lists_what_there_is(context: Context) -> None:
    built = program.build(context, ADD, "add.cl")
    with pytest.raises(DeviceError, match=r"add\.cl has no kernel 'subtract'; it has: add, double_all"):
        program.kernel(built, "subtract")


@pytest.mark.parametrize("own", [True, False])
def test_kernels_that_are_kept(context: Context, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Each of a function of its own where the driver wants that: the same function is one of another program."""
    monkeypatch.setattr(program, "OWN_FUNCTIONS", context.info.platform if own else "no platform")
    functions, built = program.Functions(context), program.build(context, ADD, "add.cl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels = [functions.take(built, name) for name in ("add", "add", "double_all", "add")]
    programs = [kernel.get_info(cl.kernel_info.PROGRAM).int_ptr for kernel in kernels]
    assert programs[0] == programs[2] == built.handle.int_ptr
    assert len({programs[n] for n in (0, 1, 3)}) == (3 if own else 1)
    buffer = image.create_buffer(context, np.zeros(64, np.float32))
    for number, kernel in enumerate(kernels):
        kernel.set_args(*([buffer] if number == 2 else [buffer, np.float32(number + 1)]))
    for kernel in kernels:
        queue.enqueue(context, kernel, (64,))
    np.testing.assert_array_equal(image.download_buffer(context, buffer, (64,), np.float32), np.full(64, 10.0))


def test_launches_run_in_order_with_their_own_arguments(context: Context) -> None:
    built = program.build(context, ADD, "add.cl")
    buffer = image.create_buffer(context, np.zeros(64, np.float32))
    add_one, add_three, double = (program.kernel(built, name) for name in ("add", "add", "double_all"))
    add_one.set_args(buffer, np.float32(1))
    add_three.set_args(buffer, np.float32(3))
    double.set_args(buffer)
    expected = 0
    for _ in range(5):
        for launch in (add_one, double, add_three):
            queue.enqueue(context, launch, (64,), (16,))
        expected = (expected + 1) * 2 + 3
    queue.finish(context)
    np.testing.assert_array_equal(image.download_buffer(context, buffer, (64,), np.float32), expected)


def test_refused_launch_names_kernel_and_sizes(context: Context) -> None:
    launch = program.kernel(program.build(context, ADD, "add.cl"), "add")
    buffer = image.create_buffer(context, 4 * 1024)
    launch.set_args(buffer, np.float32(1))
    too_large = 2 * context.info.max_work_group_size
    with pytest.raises(DeviceError) as caught:
        queue.enqueue(context, launch, (too_large,), (too_large,))
    for part in ("'add'", str(too_large), context.info.name):
        assert part in str(caught.value)


@pytest.mark.parametrize("found", [True, False], ids=["library", "no library"])
def test_launches_that_are_ready(context: Context, monkeypatch: pytest.MonkeyPatch, found: bool) -> None:
    """Through the driver's own function, and through pyopencl where the library is not found."""
    if not found:
        monkeypatch.setattr(queue, "launch_function", lambda: None)
    grid = "kernel void grid(global float *x) { x[get_global_id(0) + 8 * get_global_id(1)] *= get_local_size(0); }"
    built = program.build(context, ADD + grid, "add.cl")
    buffer = image.create_buffer(context, np.zeros(64, np.float32))
    add, double = program.kernel(built, "add"), program.kernel(built, "grid")
    add.set_args(buffer, np.float32(1))
    double.set_args(buffer)
    bound = queue.bind(context, [(add, (64,), None), (double, (8, 4), (2, 1)), (add, (64,), (8,))])
    enqueued: list[object] = []
    one_by_one = queue.enqueue
    monkeypatch.setattr(queue, "enqueue", lambda *arguments: (enqueued.append(arguments[1]), one_by_one(*arguments)))
    expected = np.zeros(64, np.float32)
    for _ in range(3):
        queue.enqueue_all(context, bound)
        expected += 1
        expected[:32] *= 2
        expected += 1
    queue.finish(context)
    np.testing.assert_array_equal(image.download_buffer(context, buffer, (64,), np.float32), expected)
    assert enqueued == ([] if found else [add, double, add] * 3)
    too_large = 2 * context.info.max_work_group_size
    with pytest.raises(DeviceError, match=f"'add'.*{too_large}"):
        queue.enqueue_all(context, queue.bind(context, [(add, (too_large,), (too_large,))]))


def test_durations_need_a_profiling_queue(context: Context) -> None:
    with pytest.raises(DeviceError, match="profile=True"):
        queue.durations(context, [])


def test_durations_are_seconds_of_each_launch(device: DeviceInfo) -> None:
    context = open_device(device, profile=True)
    source = """
kernel void spin(global float *values, int rounds) {
  float value = values[0];
  for (int i = 0; i < rounds; i++) value = native_sin(value) + 1.0f;
  values[0] = value;
}
"""
    built = program.build(context, source, "spin.cl")
    buffer = image.create_buffer(context, np.ones(1, np.float32))
    launches = []
    for rounds in (1, 1, 1_000_000):
        launch = program.kernel(built, "spin")
        launch.set_args(buffer, np.int32(rounds))
        launches.append(launch)
    _warm_up, short, long = queue.durations(context, [queue.enqueue(context, launch, (1,)) for launch in launches])
    assert 0 < short < long
    assert 1e-4 < long < 10


# common.cl


def test_exp_is_right_everywhere(context: Context) -> None:
    """exp_of and expm1_of within 2 units in the last place, over all that is finite; infinities and NaN."""
    kernels = "".join(
        f"""kernel void {name}(global float4 *values) {{
          values[get_global_id(0)] = {name}_of(values[get_global_id(0)]);
        }}
        """ for name in ("exp", "expm1")
    ).replace("void exp(", "void raise(").replace("void expm1(", "void raise_less(")
    built = program.build(context, COMMON.read_text(encoding="utf-8") + kernels, "exp")
    tiny = np.geomspace(1e-37, 1, 5000)
    x = np.concatenate([np.linspace(-87, 88.7, 20000), tiny, -tiny]).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 89, -200, 0, -0.0, 1e30], np.float32)
    values = np.concatenate([x, special])
    for name, meaning in (("raise", np.exp), ("raise_less", np.expm1)):
        memory = image.create_buffer(context, values, name)
        bound = program.kernel(built, name)
        bound.set_args(memory)
        queue.enqueue(context, bound, (len(values) // 4,))
        found = image.download_buffer(context, memory, values.shape, "float32")
        expected = meaning(x.astype(np.float64))
        assert np.max(np.abs(found[: len(x)] - expected) / np.maximum(np.abs(expected), 2.0**-126)) <= 2.0**-22
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found[len(x) :], meaning(special), err_msg=name)
