"""Reads tensors that are stored in another file. The model may be untrusted: only files in its folder are read."""

from __future__ import annotations

import os
import stat
from math import prod
from pathlib import Path

import numpy
import onnx
import onnx.helper

from imgconv.errors import ModelError
from imgconv.limits import current_budget


def with_external_data(tensor: onnx.TensorProto, folder: Path | None) -> onnx.TensorProto:
    """The tensor with its content, read from the file next to the model that it names.

    folder: the model's; None for a model that is no file. The file is a regular one below the folder, also after links
    are followed. Raises ModelError, and UnsupportedError if the tensor is too large.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(f"tensor {tensor.name!r} is in the external file {location!r}: pass the model's path")
    path = folder / location
    offset = _integer_entry(tensor, entries, "offset", 0)
    dtype = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    current_budget().check_tensor(tensor.dims, str(dtype) if dtype.kind in "fiub" else "int64")
    length = _integer_entry(tensor, entries, "length", prod(tensor.dims) * dtype.itemsize)
    try:
        content = _read_part(path, folder, offset, length)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise ModelError(
            f"tensor {tensor.name!r} is in the external file {str(path)!r}, which cannot be read: {said}"
        ) from error
    filled = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    filled.raw_data = content
    return filled


def _integer_entry(tensor: onnx.TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not text.isdecimal() or len(text) > 18:
        raise ModelError(f"the external data of tensor {tensor.name!r} has {key} {text!r}, which is not a valid number")
    return int(text)


def _read_part(path: Path, folder: Path, offset: int, length: int) -> bytes:
    """Part of a file. Raises OSError or ValueError."""
    real = Path(os.path.realpath(path))
    if real == Path(os.path.realpath(folder)) or not real.is_relative_to(os.path.realpath(folder)):
        raise ValueError("it is outside of the model's folder")
    # A pipe would wait for a writer; what the path is now may be replaced before it is opened.
    descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if offset + length > found.st_size:
            raise ValueError(f"it has {found.st_size} bytes, not the {length} bytes at {offset} that the tensor takes")
        file.seek(offset)
        return file.read(length)
