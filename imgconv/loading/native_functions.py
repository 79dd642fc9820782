"""Measures the errors of a device's native functions, once per device and driver, and caches the result.

OpenCL does not limit the errors of native_exp and native_recip: Intel's CPU driver has an error of 2.3e-4, NVIDIA's of
5e-7. With FLOAT16, a kernel may use these functions for values that are stored as fp16, and for values that stay fp32
because rounding them to fp16 cost too much (`math_mode_of` in compiling/emit.py). Errors of the same sign add up from
layer to layer, while rounding errors average out: with Intel's functions YOLOX-Nano's error is 0.15, although rounding
to fp16 costs less than 1e-2.

So native functions are used if the source of exp and of the sigmoid (graph/expression.py, `to_half`) has an error of at
most UNITS * (1 + |x|) units in the last place. Vulkan's limits are lower: 3 + 2 |x| for exp2 and 2.5 for a division
(Precision and Operation of SPIR-V Instructions). Up to |x| = 10 the limit is a fortieth of the largest error of
rounding to fp16, so rounding accounts for most of the error.
"""

from __future__ import annotations

import json

import numpy

from imgconv.arrays import Array
from imgconv.cl.building.program_source import ProgramSource
from imgconv.config import Config
from imgconv.dtype import FLOAT32
from imgconv.files.disk_cache import DiskCache, hash_of
from imgconv.graph.expression import FUNCTIONS
from imgconv.runtime.device import Device

MEASURED = DiskCache("native", 2**20)
VERSION = 1  # of the measurement: raise it if it gives other numbers
MEASURED_FUNCTIONS = ("exp", "sigmoid")
UNITS, UNIT = 8.0, 2.0**-23
# Arguments: near zero, to where the exponential is near the ends of a float's range, and past these.
SAMPLES, RANGE, BEYOND = 1 << 15, 80.0, (-numpy.inf, -1000.0, 1000.0, numpy.inf)
LANES = 4


def native_functions_fit(device: Device, config: Config) -> bool:
    """Returns whether plans for the device take its native functions for halves. Measures them if no process has."""
    if config.storage == FLOAT32 or config.native_explog or device.info.kind == "cpu":  # CPU drivers' gain nothing
        return False
    return max(native_errors(device).values()) <= UNITS


def native_errors(device: Device) -> dict[str, float]:
    """The largest error of each of MEASURED_FUNCTIONS at an argument x, divided by 1 + |x|, in units in the last place.

    Kept for later processes. Raises BuildError, DeviceError.
    """
    key = hash_of(str(VERSION).encode(), device.info.key.encode()).hex()
    kept = MEASURED.read(key)
    if kept is not None:
        return {name: float(error) for name, error in json.loads(kept).items()}
    x = sampled_arguments()
    found = {name: largest_error(name, x, made) for name, made in device_results(device, x).items()}
    MEASURED.write(key, json.dumps(found).encode())
    return found


def sampled_arguments() -> Array:
    """The arguments at which functions are measured."""
    random = numpy.random.default_rng(0)
    parts = random.uniform(-1, 1, SAMPLES), random.uniform(-RANGE, RANGE, SAMPLES), BEYOND
    return numpy.concatenate(parts).astype(numpy.float32)


def device_results(device: Device, x: Array) -> dict[str, Array]:
    """Returns the device's results for some arguments, by function."""
    forms = {name: (FUNCTIONS[name].to_half or "").format("x[n]") for name in MEASURED_FUNCTIONS}
    lines = "\n".join(f"  {name}[n] = {form};" for name, form in forms.items())
    outputs = "".join(f", __global float4 *{name}" for name in MEASURED_FUNCTIONS)
    source = f"__kernel void k(__global const float4 *x{outputs}) {{\n  const int n = get_global_id(0);\n{lines}\n}}\n"
    with device.build_in_background([ProgramSource(source, "imgconv/loading/native_functions.py")]) as built:
        (program,) = built
    given, results = device.buffer(x), {name: device.buffer(numpy.zeros_like(x)) for name in MEASURED_FUNCTIONS}
    device.enqueue(*device.launch(program, "k", [given, *results.values()], (x.size // LANES,), None))
    return {name: device.read(made, x.shape, x.dtype) for name, made in results.items()}


def largest_error(name: str, x: Array, made: Array) -> float:
    """The largest error of a function's results, relative and divided by 1 + |x|, in units in the last place."""
    exact = x.astype(numpy.float64)
    with numpy.errstate(all="ignore"):
        expected = FUNCTIONS[name].numpy(exact)
        error = numpy.abs(made / expected - 1) / (1 + numpy.abs(exact)) / UNIT
        error[made == expected.astype(numpy.float32)] = 0  # zero and infinity too
    return float(numpy.max(numpy.where(numpy.isnan(error), numpy.inf, error)))
