"""imgconv devices: list the OpenCL devices, their features, and the installed drivers."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from imgconv.cl.device import DeviceInfo, list_devices, select_device
from imgconv.cl.priority import PRIORITY_EXTENSIONS
from imgconv.commands.driver_list import Driver, list_drivers, searched_folders
from imgconv.config import read_device
from imgconv.errors import DeviceError
from imgconv.reports import terminal

DESCRIPTION = """\
List every OpenCL device with the features that imgconv uses; * marks the default. Then list the drivers: where each was
found and, if it has no devices, the reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--device", help="show only this device: its index or part of its name")


def execute(options: argparse.Namespace) -> None:
    """Prints the devices. Raises DeviceError if there is none, or if IMGCONV_DEVICE fits none."""
    devices = list_devices()
    shown = devices if options.device is None else (select_device(options.device, devices),)
    drivers = list_drivers({device.platform for device in devices})
    problem = None
    chosen = None
    try:
        chosen = select_device(read_device(), devices)
    except DeviceError as error:
        problem = error
    if options.json:
        listed = [{**dataclasses.asdict(device), "default": device == chosen} for device in shown]
        terminal.print_json({"devices": listed, "drivers": [dataclasses.asdict(driver) for driver in drivers]})
    else:
        for device in shown:
            print_device(device, device == chosen)
        print_drivers(drivers)
    if problem:
        raise problem


def print_device(device: DeviceInfo, is_default: bool) -> None:
    """One device as a block of lines."""
    console = terminal.console()
    console.print(f"{'*' if is_default else ' '} [{device.index}] {device.name}", style="bold" if is_default else None)
    for name, value in describe(device):
        terminal.print_at(console, 6, f"{name:18} {value}", under=25)


def print_drivers(drivers: Sequence[Driver]) -> None:
    """Prints where each driver was found, and its platforms or why its devices are missing."""
    console = terminal.console()
    searched = ", ".join(map(str, searched_folders()))
    console.print("drivers" if drivers else f"no driver: no .icd file in {searched}")
    for driver in drivers:
        found = "; ".join(filter(None, (", ".join(driver.platforms), driver.problem)))
        style = "red" if driver.problem and not driver.platforms else None
        named = driver.library if driver.problem else Path(driver.library).name
        terminal.print_at(console, 6, f"{named}: {found}", style, under=10)
        terminal.print_at(console, 8, f"from {driver.named_by}", under=10)


def describe(device: DeviceInfo) -> list[tuple[str, object]]:
    """The lines shown for a device, in order: (name, value)."""
    problem = f"open this device: {device.problem}" if device.problem else "use this device"
    formats = [name for name, offered in (("fp32", device.float_images), ("fp16", device.half_images)) if offered]
    sizes = "x".join(map(str, device.max_work_item_sizes))
    image = f"{device.max_image_width}x{device.max_image_height}, arrays of {device.max_image_layers} layers"
    memory = f"{_megabytes(device.global_memory_bytes)}, {_megabytes(device.max_allocation_bytes)} in one allocation"
    qualcomm = [name for name in device.extensions if name.startswith("cl_qcom_")]
    compiled_for = [("instruction set", device.instruction_set)] if device.instruction_set else []
    return [
        ("platform", device.platform),
        ("vendor", device.vendor),
        ("kind", device.kind),
        ("driver", device.driver_version),
        ("OpenCL", device.opencl_version),
        ("OpenCL C", device.opencl_c_version),
        *compiled_for,
        ("image limit", image),
        ("RGBA read + write", ", ".join(formats) or f"none: imgconv cannot {problem}"),
        ("images per kernel", f"{device.max_read_images} read, {device.max_write_images} written"),
        ("fp16 arithmetic", _yes_or_no(device.fp16_arithmetic)),
        ("work group", f"{device.max_work_group_size} work items, at most {sizes}"),
        ("compute units", device.compute_units),
        ("memory", memory),
        ("local memory", f"{device.local_memory_bytes // 1024} KiB"),
        ("command buffer", _yes_or_no(device.command_buffer)),
        ("priority", ", ".join(filter(device.extensions.__contains__, PRIORITY_EXTENSIONS)) or "ignored: no extension"),
        ("Qualcomm", ", ".join(qualcomm) or "no extensions"),
    ]


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _megabytes(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
