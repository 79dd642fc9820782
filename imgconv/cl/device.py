"""Lists the OpenCL devices with their properties, and opens one.

list_devices() returns DeviceInfos, select() one of them, and open_device() an OpenCLDevice.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import partial
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar, get_args

from imgconv.cl.device_info import DeviceInfo as DeviceInfo
from imgconv.cl.device_info import DeviceKind
from imgconv.cl.driver_links import path_problem
from imgconv.cl.drivers import cpu_variables, make_drivers_visible
from imgconv.cl.instruction_set import instruction_set, read_cpuinfo
from imgconv.cl.opencl_library import device_number, new_context
from imgconv.cl.priority import Priority, context_hints
from imgconv.cl.quirks import quirks_of
from imgconv.cl.shutdown import shutdown_guard
from imgconv.cl.watchdog import TIMEOUT, CallOverdueError, DriverCall
from imgconv.dtype import DotProduct
from imgconv.errors import DeviceError

if TYPE_CHECKING:
    import pyopencl as cl

    from imgconv.cl.opencl_device import OpenCLDevice

# Parameters of clGetDeviceInfo in cl_ext.h.
IMAGE_PITCH_ALIGNMENT = 0x104A
IMAGE_BASE_ADDRESS_ALIGNMENT = 0x104B
CONTEXT_PLATFORM = 0x1084
QUALCOMM = 0x5143  # CL_DEVICE_VENDOR_ID
UNKNOWN_COMPUTE_UNITS, COMPUTE_UNITS_OF_ADRENO = 9999, 2  # an Adreno has 1 to 6

Result = TypeVar("Result")
Hints = tuple[tuple[int, int], ...]  # properties of a context


# Held while the loader looks for drivers, because it reads a variable of the whole process.
_looking = Lock()
# By the index of the device: the context by which `select_device` looked at what it chose, for `open_device`. NVIDIA's
# driver (580) takes 0.1 s to make one.
_looked_at: dict[int, cl.Context] = {}


def list_devices() -> tuple[DeviceInfo, ...]:
    """Every OpenCL device of every driver, sorted by platform name; empty without a driver.

    Raises DeviceError if pyopencl itself cannot be imported.
    """
    try:
        return _describe_devices()
    finally:
        _looked_at.clear()


def _describe_devices() -> tuple[DeviceInfo, ...]:
    return _call_driver(lambda: tuple(_describe(index, device) for index, device in enumerate(_find_devices())))


def _call_driver(function: Callable[[], Result]) -> Result:
    """Returns what a function returns that calls drivers before there is a Context."""
    try:
        return DriverCall(function).result(TIMEOUT)
    except CallOverdueError:
        advice = "end other processes that use the device, or restart the machine"
        raise DeviceError(f"an OpenCL driver did not answer within {TIMEOUT:g} s: {advice}") from None


def default_device(devices: tuple[DeviceInfo, ...]) -> DeviceInfo:
    """The default device. Devices with float images come first, then GPUs before accelerators before CPUs.

    Raises DeviceError if there is none.
    """
    if not devices:
        raise DeviceError(no_driver_message(sys.platform, platform.machine(), _on_android()))
    kinds = get_args(DeviceKind)
    return min(devices, key=lambda device: (not device.float_images, kinds.index(device.kind), device.index))


def select_device(choice: str | int | None = None, devices: tuple[DeviceInfo, ...] | None = None) -> DeviceInfo:
    """The device that ``choice`` means: an index, a part of its name in any case, or None for the default.

    The part is looked for in ``DeviceInfo.full_name``: platform, name, and OpenCL C version (the only place of "pocl"
    and "Adreno(TM) 640"). ``devices`` are the candidates: by default every device. Raises DeviceError if there is no
    driver, or, with a list of the candidates, if none or more than one fits.

    select_device("Adreno"), select_device(0), select_device()
    """
    chosen = None
    try:
        chosen = _device_matching(choice, _describe_devices() if devices is None else devices)
    finally:
        for index in [index for index in _looked_at if chosen is None or index != chosen.index]:
            _looked_at.pop(index, None)
    return chosen


def _device_matching(choice: str | int | None, candidates: tuple[DeviceInfo, ...]) -> DeviceInfo:
    if choice is None or not candidates:
        return default_device(candidates)
    text = str(choice).strip()
    if text.isdecimal():
        fitting = [device for device in candidates if device.index == int(text)]
    else:
        fitting = [device for device in candidates if text.lower() in device.full_name.lower()]
    if len(fitting) == 1:
        return fitting[0]
    problem = "more than one OpenCL device fits" if fitting else "no OpenCL device fits"
    listing = "\n".join(f"  {device}" for device in fitting or candidates)
    raise DeviceError(f"{problem} {choice!r}; choose by index or by a part of one name:\n{listing}")


def open_device(
    info: DeviceInfo, profile: bool = False, timeout: float = TIMEOUT, priority: Priority | None = None
) -> OpenCLDevice:
    """Opens the device. With ``profile`` its queue records when each launch starts and ends.

    timeout: seconds that a wait for the device may take. priority: next to that of other programs, if the driver has
    one of PRIORITY_EXTENSIONS; else it is ignored.

    A process has one OpenCL context for each device and its hints, and a new queue for each call.
    Raises DeviceError if the device is gone, has no RGBA float images, or the driver refuses.
    """
    import pyopencl as cl

    from imgconv.cl.context import driver_error, handles, new_queue
    from imgconv.cl.opencl_device import OpenCLDevice

    _disable_pyopencl_caches(cl)
    devices = _call_driver(_find_devices)
    device = devices[info.index] if info.index < len(devices) else None
    if device is None or (_one_line(device.platform.name), _one_line(device.name)) != (info.platform, info.name):
        raise DeviceError(f"device {info} no longer exists: list the devices again")
    if info.problem:
        remedy = path_problem() or (
            "Another process may use all of it, or the driver has to be updated; imgconv devices shows what other "
            "devices there are"
        )
        raise DeviceError(f"device {info} cannot be opened: {info.problem}. {remedy}")
    if not info.float_images:
        refused = f"device {info} cannot read and write RGBA fp32 images, in which all tensors are stored"
        raise DeviceError(". ".join(filter(None, (refused, path_problem()))))
    hints = context_hints(info.extensions, priority)
    try:
        made, key = partial(_take_or_make_context, info.index, device, hints), (device.int_ptr, hints)
        handle = handles.get(key) or handles.setdefault(key, _call_driver(made))
        queue = _call_driver(partial(new_queue, handle, info, profile, priority))
        return OpenCLDevice(info, handle, queue, profile, timeout, priority)
    except cl.Error as error:
        raise driver_error(info, "opening the device", error) from error


def _disable_pyopencl_caches(pyopencl: ModuleType) -> None:
    """Switches pyopencl's caches off, as PYOPENCL_NO_CACHE=1 does; pyopencl reads that only when it is imported.

    The caches hold pickles: anyone who can write them can run code here. If they cannot be written, pyopencl makes no
    kernels. building/program.py takes their place.
    """
    vars(pyopencl)["_PYOPENCL_NO_CACHE"] = True


def _take_or_make_context(index: int, device: cl.Device, hints: Hints) -> cl.Context:
    """The context of `select_device`, or a new one."""
    kept = _looked_at.pop(index, None)
    is_fit = kept is not None and kept.devices == [device] and hints == context_hints(device.extensions.split(), None)
    return kept if kept is not None and is_fit else _new_context(device, hints)


def _new_context(device: cl.Device, hints: Hints) -> cl.Context:
    """A context of this device only, with hints, unless its driver refuses them."""
    import pyopencl as cl

    # pyopencl refuses context properties that it does not know.
    hinted = new_context(device, [(CONTEXT_PLATFORM, device.platform.int_ptr), *hints]) if hints else 0
    return cl.Context.from_int_ptr(hinted, retain=False) if hinted else cl.Context([device])


def no_driver_message(system: str, machine: str, android: bool) -> str:
    """Returns what to install if there is no OpenCL driver. system: sys.platform; machine: platform.machine()."""
    x86 = machine.lower() in ("x86_64", "amd64")
    if android:
        advice = (
            "on Android (Termux) let the loader find the phone's own driver: "
            "Adreno: export LD_LIBRARY_PATH=/vendor/lib64:$PREFIX/lib (it holds libOpenCL.so); "
            "Mali: pkg install opencl-vendor-driver; "
            "neither: pkg install ocl-icd clvk (OpenCL on top of Vulkan)"
        )
    elif system == "linux" and x86:
        advice = (
            "install the GPU vendor's driver, or a CPU driver: "
            "pip install intel-opencl-rt intel-cmplr-lib-rt, or Debian's pocl-opencl-icd"
        )
    elif system == "linux":
        advice = "install the GPU vendor's libOpenCL with its .icd file, or a CPU driver: Debian's pocl-opencl-icd"
    elif system == "darwin":
        advice = "macOS: install PoCL (conda install -c conda-forge pocl)"
    else:
        advice = "install the GPU vendor's driver"
    listing = "imgconv devices lists the folders that were searched"
    return f"no OpenCL driver found on this machine ({system}, {machine}): {advice}; {listing}"


def _on_android() -> bool:
    return hasattr(sys, "getandroidapilevel")


def _find_devices() -> list[cl.Device]:
    try:
        import pyopencl as cl
    except ImportError as error:
        message = no_driver_message(sys.platform, platform.machine(), _on_android())
        raise DeviceError(f"pyopencl cannot be imported ({error}); {message}") from error

    with shutdown_guard, _looking, make_drivers_visible():
        try:
            platforms = cl.get_platforms()
        except cl.Error:
            return []
    devices: list[cl.Device] = []
    # The loader's own order depends on the order of files in a folder; a device's index must not.
    for found in sorted(platforms, key=lambda each: (each.name, each.version)):
        try:
            devices += found.get_devices()
        except cl.Error:
            continue
    return devices


def _describe(index: int, device: cl.Device) -> DeviceInfo:
    extensions = tuple(sorted(device.extensions.split()))
    images = bool(device.image_support)
    formats, problem = _image_formats(index, device) if images else (frozenset(), "")
    kind, vector_floats = _kind(device), max(4, device.native_vector_width_float)
    compiled_for = (read_cpuinfo(), platform.machine(), vector_floats, cpu_variables())
    return DeviceInfo(
        index=index,
        platform=_one_line(device.platform.name),
        name=_one_line(device.name),
        vendor=_one_line(device.vendor),
        kind=kind,
        driver_version=_one_line(device.driver_version),
        opencl_version=_one_line(device.version),
        opencl_c_version=_one_line(device.opencl_c_version),
        max_image_width=device.image2d_max_width if images else 0,
        max_image_height=device.image2d_max_height if images else 0,
        max_image_layers=device.image_max_array_size if images else 0,
        max_read_images=device.max_read_image_args if images else 0,
        max_write_images=device.max_write_image_args if images else 0,
        compute_units=_compute_units(device),
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=tuple(device.max_work_item_sizes),
        local_memory_bytes=device.local_mem_size,
        global_memory_bytes=device.global_mem_size,
        max_allocation_bytes=device.max_mem_alloc_size,
        float_images="float" in formats,
        half_images="half" in formats,
        fp16_arithmetic="cl_khr_fp16" in extensions,
        command_buffer="cl_khr_command_buffer" in extensions,
        extensions=extensions,
        byte_images="byte" in formats,
        buffer_alignment=device.mem_base_addr_align // 8,
        shares_memory=bool(device.host_unified_memory),
        vector_floats=vector_floats,
        instruction_set=instruction_set(*compiled_for) if kind == "cpu" else "",
        dot_product=_dot_product(index, device, extensions) if kind == "gpu" and formats else "",
        problem=problem,
        **_image_alignment(device, extensions),
    )


def _compute_units(device: cl.Device) -> int:
    """CL_DEVICE_MAX_COMPUTE_UNITS. Mesa's driver for Adreno does not know the number and says 9999."""
    units: int = device.max_compute_units
    return COMPUTE_UNITS_OF_ADRENO if device.vendor_id == QUALCOMM and units == UNKNOWN_COMPUTE_UNITS else units


def _image_alignment(device: cl.Device, extensions: tuple[str, ...]) -> dict[str, int]:
    """The alignments of cl_khr_image2d_from_buffer; none if images in parts of buffers cannot be used."""
    is_right = quirks_of(_one_line(device.platform.name)).images_in_buffers
    if "cl_khr_image2d_from_buffer" not in extensions or not is_right:
        return {}
    row, base = (device_number(device, number) for number in (IMAGE_PITCH_ALIGNMENT, IMAGE_BASE_ADDRESS_ALIGNMENT))
    texel = 4  # bytes of the smallest texel; the start of a buffer in a buffer is aligned in bits
    return {"image_row_alignment": row, "image_base_alignment": max(base, device.mem_base_addr_align // 8 // texel)}


def _one_line(value: str) -> str:
    return " ".join(value.replace("\0", " ").split())


def _kind(device: cl.Device) -> DeviceKind:
    import pyopencl as cl

    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def _dot_product(index: int, device: cl.Device, extensions: tuple[str, ...]) -> DotProduct:
    """The instruction for products of bytes of a device that can be opened; "" if it has none."""
    from imgconv.cl.dot_products import dot_product

    return dot_product(_context_for_queries(index, device), extensions)


def _context_for_queries(index: int, device: cl.Device) -> cl.Context:
    """The context in which a device is looked at."""
    from imgconv.cl.context import handles

    hints = context_hints(device.extensions.split(), None)
    kept = handles.get((device.int_ptr, hints)) or _looked_at.get(index)
    return kept or _looked_at.setdefault(index, _new_context(device, hints))


def _image_formats(index: int, device: cl.Device) -> tuple[frozenset[str], str]:
    """Returns the members of 'float', 'half' and 'byte' (signed, normalised) whose RGBA the device reads and writes.

    In single images as well as in image arrays. Also why it cannot be opened; empty if it can.
    """
    import pyopencl as cl

    types = {"float": cl.channel_type.FLOAT, "half": cl.channel_type.HALF_FLOAT, "byte": cl.channel_type.SNORM_INT8}
    try:
        context = _context_for_queries(index, device)
        offered = [
            cl.get_supported_image_formats(context, cl.mem_flags.READ_WRITE, image_type)
            for image_type in (cl.mem_object_type.IMAGE2D, cl.mem_object_type.IMAGE2D_ARRAY)
        ]
    except cl.Error as error:
        # A device that cannot be opened is listed without images; open_device refuses it.
        return frozenset(), f"{error}, status {error.code}"
    found = frozenset(
        name
        for name, channel_type in types.items()
        if all(cl.ImageFormat(cl.channel_order.RGBA, channel_type) in formats for formats in offered)
    )
    return found, ""
