"""Lists the OpenCL devices and their properties, and opens one.

list_devices() gives a tuple of DeviceInfo, select() one of them, open_device() the Context that the rest of imgconv.cl
works in.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args

from imgconv.cl.build_processes import Builders
from imgconv.cl.driver_links import path_problem
from imgconv.cl.drivers import cpu_variables, drivers_visible
from imgconv.cl.ending import WAITING, driver_use, keep
from imgconv.cl.instruction_set import instruction_set, read_cpuinfo
from imgconv.cl.loader import device_number, new_context
from imgconv.cl.watchdog import Call, Overdue
from imgconv.errors import DeviceError, ResourceError
from imgconv.limits import Limits

if TYPE_CHECKING:
    import pyopencl as cl

# Parameters of clGetDeviceInfo in cl_ext.h.
IMAGE_PITCH_ALIGNMENT = 0x104A
IMAGE_BASE_ADDRESS_ALIGNMENT = 0x104B
# Properties of clCreateContext in Qualcomm's cl_ext_qcom.h. Without the hint the clocks of a phone's GPU fall between
# frames. The priority is left to the system: a higher one delays what the screen shows.
PERFORMANCE_HINTS = {"cl_qcom_perf_hint": (0x40C2, 0x40C3)}  # CL_CONTEXT_PERF_HINT_QCOM, CL_PERF_HINT_HIGH_QCOM
CONTEXT_PLATFORM = 0x1084
QUALCOMM = 0x5143  # CL_DEVICE_VENDOR_ID
# Mesa's platform: its images in a part of a buffer (25.0) start where the whole buffer starts.
WITHOUT_IMAGES_IN_PARTS = "rusticl"
UNKNOWN_COMPUTE_UNITS, COMPUTE_UNITS_OF_ADRENO = 9999, 2  # an Adreno has 1 to 6

DeviceKind = Literal["gpu", "accelerator", "cpu"]  # the best first
Result = TypeVar("Result")


@dataclass(frozen=True)
class DeviceInfo:
    """The properties of an OpenCL device. Image sizes are in texels, memory in bytes, work sizes in work items."""

    index: int
    platform: str
    name: str
    vendor: str
    kind: DeviceKind
    driver_version: str
    opencl_version: str
    opencl_c_version: str
    max_image_width: int
    max_image_height: int
    max_image_layers: int
    max_read_images: int
    """Images that one kernel may read."""
    max_write_images: int
    """Images that one kernel may write."""
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    local_memory_bytes: int
    global_memory_bytes: int
    max_allocation_bytes: int
    float_images: bool
    """RGBA float can be read and written, as image2d and as image2d_array."""
    half_images: bool
    """RGBA half can be read and written, as image2d and as image2d_array."""
    fp16_arithmetic: bool
    command_buffer: bool
    extensions: tuple[str, ...]
    byte_images: bool = False
    """RGBA of normalised signed bytes can be read and written, as image2d and as image2d_array."""
    image_row_alignment: int = 0
    """Rows of an image that is part of a buffer have a multiple of so many texels; 0 if there are no such images."""
    image_base_alignment: int = 0
    """The start of such an image is a multiple of this, in texels."""
    buffer_alignment: int = 128
    """The start of a buffer that is part of another is a multiple of so many bytes."""
    shares_memory: bool = False
    """Its memory is the host's: CL_DEVICE_HOST_UNIFIED_MEMORY."""
    vector_floats: int = 16
    """Floats in a register of vectors, if it is a CPU: CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT."""
    instruction_set: str = ""
    """The instruction set that the driver compiles for, of a CPU: see cl/instruction_set.py."""
    problem: str = ""
    """Why it cannot be opened, with OpenCL's status; empty if it can."""

    @property
    def full_name(self) -> str:
        """Platform, name, OpenCL C version and driver version in one line.

        All Adrenos share one name and differ only in their OpenCL C version.
        """
        return " | ".join((self.platform, self.name, self.opencl_c_version, self.driver_version))

    @property
    def key(self) -> str:
        """One line that identifies device and driver, for stored tuning and caches: a CPU's has its instruction set."""
        return f"{self.full_name} | {self.instruction_set}" if self.instruction_set else self.full_name

    def __str__(self) -> str:
        return f"[{self.index}] {self.name} ({self.kind}, {self.platform}, {self.opencl_version})"


# Seconds that a wait for the device may take by default.
PATIENCE = Limits.run_seconds
# NVIDIA's driver (580) spins in a wait. A bounded one adds 0.05 to 0.15 ms to a run of 0.36 ms on an H100.
UNBOUNDED = ("NVIDIA CUDA",)
NAMING_SECONDS = 1.0  # for a look at what a device does that hangs


@dataclass(frozen=True, eq=False)
class Context:
    """One opened device: its pyopencl context and one in-order queue. Pass it to everything in imgconv.cl."""

    info: DeviceInfo
    handle: cl.Context
    queue: cl.CommandQueue
    profile: bool
    """True if the queue records when each launch starts and ends."""
    builders: Builders
    """Who builds programs for it."""
    patience: float = PATIENCE
    """Seconds that a wait for the device may take."""
    lock: Lock = field(default_factory=Lock)
    """The thread that enqueues a run holds it, so that the launches of one run stay together."""
    copies: list[cl.Event] = field(default_factory=list)
    """The events of copies that may be under way: to drop one waits for its copy."""
    first_launches: list[FirstLaunch] = field(default_factory=list)
    """The launches of first runs that may be under way, in order, so that one that hangs can be named."""
    left: list[Call[Any]] = field(default_factory=list)
    """Calls of the driver whose caller pressed Ctrl-C."""
    in_use: list[object] = field(default_factory=list)
    """Objects that commands of failed runs may still use: the arrays of a caller who pressed Ctrl-C, for example."""
    hung: list[str] = field(default_factory=list)
    """Why the device was given up; empty if it was not."""

    @property
    def waits_directly(self) -> bool:
        """True if waits are the driver's own, without a bound: of some drivers, by default, after first runs."""
        return self.info.platform in UNBOUNDED and self.patience == PATIENCE and not self.first_launches

    def within(self, function: Callable[[], Result], seconds: float | None = None) -> Result:
        """Returns what a function returns that calls the driver. Raises what it raises.

        seconds: that it may take, by default `patience`; then the device is given up, which raises DeviceError.
        """
        self.check()
        bound, call = self.patience if seconds is None else seconds, Call(function)
        try:
            return call.result(bound)
        except Overdue:
            self.give_up(bound)
        except BaseException:
            if not call.is_over:
                self.left.append(call)
            raise

    def check(self) -> None:
        """Raises DeviceError if the device was given up."""
        if self.hung:
            raise DeviceError(self.hung[0])

    def give_up(self, seconds: float) -> NoReturn:
        """Raises DeviceError from now on. The next `open_device` makes a new context."""
        self.hung.append(
            f"{self.info.name} did not finish within {seconds:g} s (Limits.run_seconds){self._hanging_launch()}: it "
            "hangs, or the model asks for too much. Load the model again; if that fails too, start another process"
        )
        _forget(self.info)
        keep(self.copies)
        keep(self.in_use)
        if self.info.platform in WAITING:
            driver_use.keep_all(self.info.platform)
        raise DeviceError(self.hung[0])

    def _hanging_launch(self) -> str:
        """Returns the launch of a first run that has not ended; empty if none is known."""
        looked = Call(lambda: next((str(each) for each in self.first_launches if not each.is_over()), ""))
        try:
            found = looked.result(NAMING_SECONDS)
        except Exception:  # a driver that hangs may not even tell
            return ""
        return f", {found}" if found else ""


@dataclass
class FirstLaunch:
    """A launch of a first run. event: None as long as the driver is enqueuing it."""

    name: str
    event: cl.Event | None = None

    def is_over(self) -> bool:
        """Returns whether it has ended."""
        return self.event is not None and self.event.command_execution_status <= 0

    def has_failed(self) -> bool:
        """Returns whether it has ended with an error."""
        return self.event is not None and self.event.command_execution_status < 0

    def __str__(self) -> str:
        return self.name


# Held while the loader looks for drivers, because it reads a variable of the whole process.
_looking = Lock()
# Codes of commands whose device was reset or taken away, by its watchdog for example; NVIDIA's own is the last one.
LOST = (-2, -5, -14, -33, -34, -36, -9999)
# What a user can do about a call that fails: because the device was lost, because memory is short, or else.
LOST_ADVICE = "the device was lost or reset: load the model again; if that fails too, start another process"
SHORTAGE_ADVICE = "a smaller input or FLOAT16=1 takes less, and so does ending what else uses the device"
ADVICE = "update the driver, or choose another device: imgconv devices lists them"
# By the driver's handle of the device. Programs belong to a context. Some drivers keep memory for each program ever
# built (Intel's for CPUs, 25 KB): with a new context for each model, they would grow with every model that is loaded.
_handles: dict[int, cl.Context] = {}
# By the index of the device: the context by which `select` looked at what it chose, for `open_device`. NVIDIA's driver
# (580) takes 0.1 s to make one.
_looked_at: dict[int, cl.Context] = {}


def list_devices() -> tuple[DeviceInfo, ...]:
    """Every OpenCL device of every driver, sorted by platform name; empty without a driver.

    Raises DeviceError if pyopencl itself cannot be imported.
    """
    try:
        return _described()
    finally:
        _looked_at.clear()


def _described() -> tuple[DeviceInfo, ...]:
    return _asked(lambda: tuple(_describe(index, device) for index, device in enumerate(_find_devices())))


def _asked(function: Callable[[], Result]) -> Result:
    """Returns what a function returns that calls drivers before there is a Context."""
    try:
        return Call(function).result(PATIENCE)
    except Overdue:
        advice = "end other processes that use the device, or start the machine anew"
        raise DeviceError(f"an OpenCL driver did not answer within {PATIENCE:g} s: {advice}") from None


def default_device(devices: tuple[DeviceInfo, ...]) -> DeviceInfo:
    """The default device. Devices with float images come first, then GPUs before accelerators before CPUs.

    Raises DeviceError if there is none.
    """
    if not devices:
        raise DeviceError(no_driver_message(sys.platform, platform.machine(), _on_android()))
    kinds = get_args(DeviceKind)
    return min(devices, key=lambda device: (not device.float_images, kinds.index(device.kind), device.index))


def select(choice: str | int | None = None, devices: tuple[DeviceInfo, ...] | None = None) -> DeviceInfo:
    """The device that ``choice`` means: an index, a part of its name in any case, or None for the default.

    The part is looked for in ``DeviceInfo.full_name``: platform, name, and OpenCL C version (the only place of "pocl"
    and "Adreno(TM) 640"). ``devices`` are the candidates: by default every device. Raises DeviceError if there is no
    driver, or, with a list of the candidates, if none or more than one fits.

    select("Adreno"), select(0), select()
    """
    chosen = None
    try:
        chosen = _chosen(choice, _described() if devices is None else devices)
    finally:
        for index in [index for index in _looked_at if chosen is None or index != chosen.index]:
            _looked_at.pop(index, None)
    return chosen


def _chosen(choice: str | int | None, candidates: tuple[DeviceInfo, ...]) -> DeviceInfo:
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


def open_device(info: DeviceInfo, profile: bool = False, patience: float = PATIENCE) -> Context:
    """Opens the device. With ``profile`` its queue records when each launch starts and ends.

    patience: seconds that a wait for the device may take.

    A process has one OpenCL context for each device, and a new queue for each call.
    Raises DeviceError if the device is gone, has no RGBA float images, or the driver refuses.
    """
    import pyopencl as cl

    _leave_out_caches(cl)
    devices = _asked(_find_devices)
    device = devices[info.index] if info.index < len(devices) else None
    if device is None or (_text(device.platform.name), _text(device.name)) != (info.platform, info.name):
        raise DeviceError(f"device {info} is not there any more: list the devices again")
    if info.problem:
        remedy = path_problem() or (
            "Another process may use all of it, or the driver has to be updated; imgconv devices shows what other "
            "devices there are"
        )
        raise DeviceError(f"device {info} cannot be opened: {info.problem}. {remedy}")
    if not info.float_images:
        refused = f"device {info} cannot read and write RGBA float images, where all tensors are kept"
        raise DeviceError(". ".join(filter(None, (refused, path_problem()))))
    properties = {"properties": cl.command_queue_properties.PROFILING_ENABLE} if profile else {}
    try:
        made = partial(_handle, info.index, device)
        handle = _handles.get(device.int_ptr) or _handles.setdefault(device.int_ptr, _asked(made))
        queue = _asked(partial(cl.CommandQueue, handle, device, **properties))
        return Context(info, handle, queue, profile, Builders(device), patience)
    except cl.Error as error:
        raise refusal(info, "opening the device", error) from error


def _leave_out_caches(pyopencl: ModuleType) -> None:
    """Switches pyopencl's caches off, as PYOPENCL_NO_CACHE=1 does; pyopencl reads that only when it is imported.

    The caches hold pickles: anyone who can write them can run code here. If they cannot be written, pyopencl makes no
    kernels. program_cache.py takes their place.
    """
    vars(pyopencl)["_PYOPENCL_NO_CACHE"] = True


def environment_options() -> list[str]:
    """The compiler options that pyopencl adds to every build."""
    return os.environ.get("PYOPENCL_BUILD_OPTIONS", "").split()


def _handle(index: int, device: cl.Device) -> cl.Context:
    """The context of `select`, or a new one."""
    kept = _looked_at.pop(index, None)
    return kept if kept is not None and kept.devices == [device] else _new_handle(device)


def _new_handle(device: cl.Device) -> cl.Context:
    """A context of this device only, with the performance hints that its driver knows."""
    import pyopencl as cl

    extensions = device.extensions.split()
    hints = [hint for name, hint in PERFORMANCE_HINTS.items() if name in extensions]
    # pyopencl refuses context properties that it does not know.
    hinted = new_context(device, [(CONTEXT_PLATFORM, device.platform.int_ptr), *hints]) if hints else 0
    return cl.Context.from_int_ptr(hinted, retain=False) if hinted else cl.Context([device])


def refusal(info: DeviceInfo, what: str, error: cl.Error, tensor: str = "", shape: tuple[int, ...] = ()) -> DeviceError:
    """imgconv's error for one of pyopencl's, see `failure`."""
    return failure(info, what, error.code, str(error), tensor, shape)


def failure(
    info: DeviceInfo, what: str, status: int, said: str, tensor: str = "", shape: tuple[int, ...] = ()
) -> DeviceError:
    """The error for a call of the driver that failed: ResourceError if the device lacks memory, else DeviceError.

    what: it was for. said: the status in words. If the device may be lost, the next `open_device` makes a new context:
    nothing works any more in the old one.
    """
    import pyopencl as cl

    if status in LOST:
        _forget(info)
    shortages = (
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_RESOURCES,
        cl.status_code.OUT_OF_HOST_MEMORY,
        cl.status_code.INVALID_IMAGE_SIZE,
        cl.status_code.INVALID_BUFFER_SIZE,
    )
    if status in shortages:
        limit = f"{info.global_memory_bytes} bytes in all, {info.max_allocation_bytes} in one allocation"
        return ResourceError(f"{what}: {info.name} cannot provide it: {said}; {SHORTAGE_ADVICE}", tensor, shape, limit)
    named = f"tensor {tensor!r}: {what}" if tensor else what
    return DeviceError(f"{named}: {info.name} refused: {said}; {LOST_ADVICE if status in LOST else ADVICE}")


def _forget(info: DeviceInfo) -> None:
    """Lets the next `open_device` make a new context for the device."""
    for number, handle in tuple(_handles.items()):
        if _text(handle.devices[0].name) == info.name:
            _handles.pop(number, None)


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
    listing = "imgconv devices shows where drivers were looked for"
    return f"no OpenCL driver found on this machine ({system}, {machine}): {advice}; {listing}"


def _on_android() -> bool:
    return hasattr(sys, "getandroidapilevel")


def _find_devices() -> list[cl.Device]:
    try:
        import pyopencl as cl
    except ImportError as error:
        message = no_driver_message(sys.platform, platform.machine(), _on_android())
        raise DeviceError(f"pyopencl cannot be imported ({error}); {message}") from error

    with driver_use, _looking, drivers_visible():
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
        platform=_text(device.platform.name),
        name=_text(device.name),
        vendor=_text(device.vendor),
        kind=kind,
        driver_version=_text(device.driver_version),
        opencl_version=_text(device.version),
        opencl_c_version=_text(device.opencl_c_version),
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
        problem=problem,
        **_image_alignment(device, extensions),
    )


def _compute_units(device: cl.Device) -> int:
    """CL_DEVICE_MAX_COMPUTE_UNITS. Mesa's driver for Adreno does not know the number and says 9999."""
    units: int = device.max_compute_units
    return COMPUTE_UNITS_OF_ADRENO if device.vendor_id == QUALCOMM and units == UNKNOWN_COMPUTE_UNITS else units


def _image_alignment(device: cl.Device, extensions: tuple[str, ...]) -> dict[str, int]:
    """The alignments of cl_khr_image2d_from_buffer; none if images in parts of buffers cannot be used."""
    if "cl_khr_image2d_from_buffer" not in extensions or device.platform.name == WITHOUT_IMAGES_IN_PARTS:
        return {}
    row, base = (device_number(device, number) for number in (IMAGE_PITCH_ALIGNMENT, IMAGE_BASE_ADDRESS_ALIGNMENT))
    texel = 4  # bytes of the smallest texel; the start of a buffer in a buffer is aligned in bits
    return {"image_row_alignment": row, "image_base_alignment": max(base, device.mem_base_addr_align // 8 // texel)}


def _text(value: str) -> str:
    return " ".join(value.replace("\0", " ").split())


def _kind(device: cl.Device) -> DeviceKind:
    import pyopencl as cl

    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def _image_formats(index: int, device: cl.Device) -> tuple[frozenset[str], str]:
    """Returns the members of 'float', 'half' and 'byte' (signed, normalised) whose RGBA the device reads and writes.

    In single images as well as in image arrays. Also why it cannot be opened; empty if it can.
    """
    import pyopencl as cl

    types = {"float": cl.channel_type.FLOAT, "half": cl.channel_type.HALF_FLOAT, "byte": cl.channel_type.SNORM_INT8}
    try:
        context = _handles.get(device.int_ptr) or _looked_at.setdefault(index, _new_handle(device))
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
