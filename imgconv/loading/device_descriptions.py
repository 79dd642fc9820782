"""Descriptions of devices that are not present: JSON files that `imgconv devices --json` wrote on those devices."""

from __future__ import annotations

import json
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from imgconv.cl.device_info import DeviceInfo
from imgconv.dtype import DOT_PRODUCTS
from imgconv.errors import InputError
from imgconv.files.disk import check_regular

FOLDER = Path(__file__).parent / "devices"


def known_devices() -> tuple[str, ...]:
    """The names of the descriptions that come with imgconv. Their "sources" say where each figure is from."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def read_device_description(path: str | os.PathLike[str]) -> DeviceInfo:
    """The device of a description: a JSON file, or a name of `known_devices`.

        read_description("adreno_650").max_image_width      # 16384

    The file has one device of `imgconv devices --json`, or that command's whole output if it lists one device; other
    fields are ignored. Raises InputError that names the file and what is wrong.
    """
    name = os.fspath(path)
    file = FOLDER / f"{name}.json" if name in known_devices() else Path(name)
    try:
        check_regular(file)
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        known = ", ".join(known_devices())
        raise InputError(f"cannot read the device's description {name!r}: {reason}; known names: {known}") from error
    if isinstance(content, dict) and isinstance(content.get("devices"), list):
        if len(content["devices"]) != 1:
            raise InputError(f"{name!r} lists {len(content['devices'])} devices: keep one of them")
        (content,) = content["devices"]
    return _device(name, content)


def _device(name: str, content: Any) -> DeviceInfo:
    if not isinstance(content, dict):
        raise InputError(f"{name!r} does not describe a device: it is not a JSON object")
    values: dict[str, Any] = {}
    for field in fields(DeviceInfo):
        if field.name not in content:
            if field.default is MISSING:
                raise InputError(f"{name!r} does not describe a device: it has no {field.name!r}")
            continue
        value = content[field.name]
        listed = tuple(value) if isinstance(value, list) else value
        if not _is_a(field.type, listed):
            raise InputError(f"{name!r}: {field.name!r} is {value!r}, not of type {field.type}")
        values[field.name] = listed
    return DeviceInfo(**values)


def _is_a(type_name: Any, value: Any) -> bool:
    """Returns whether a value is of a field's type, which the module's annotations have as text."""
    if type_name == "DeviceKind":
        return value in ("cpu", "gpu", "accelerator")
    if type_name == "DotProduct":
        return value in DOT_PRODUCTS
    if str(type_name).startswith("tuple"):
        each: type = int if "int" in type_name else str
        return isinstance(value, tuple) and all(isinstance(v, each) for v in value)
    if type_name == "int":
        return type(value) is int and value >= 0
    return isinstance(value, bool if type_name == "bool" else str)
