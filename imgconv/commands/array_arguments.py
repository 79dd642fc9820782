"""Input arrays given on the command line: from files, as numbers, or the size of the picture."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence

import numpy

from imgconv.arrays import Array, Arrays, TensorSpecs
from imgconv.commands.shared_arguments import dimensions_as_text
from imgconv.errors import InputError
from imgconv.files.disk import check_regular

# Inputs that tell a network the size of its picture, by their name in RT-DETR, PaddleDetection and YOLOv3: functions of
# width and height. They are given the size of the model's own input, in which heads expect boxes.
SIZE_INPUTS: Mapping[str, Callable[[int, int], tuple[int, int]]] = {
    "orig_target_sizes": lambda width, height: (width, height),
    "im_shape": lambda width, height: (height, width),
    "image_shape": lambda width, height: (height, width),
    "scale_factor": lambda width, height: (1, 1),
}


def picture_size_inputs(declared: TensorSpecs, arrays: Arrays) -> TensorSpecs:
    """The inputs of SIZE_INPUTS that have no array: two numbers for one picture."""
    return {
        name: (dtype, dimensions) for name, (dtype, dimensions) in declared.items()
        if name in SIZE_INPUTS and name not in arrays and dimensions is not None and len(dimensions) == 2
        and dimensions[0] in (1, *[d for d in dimensions if isinstance(d, str)]) and dimensions[1] != 1
    }


def read_value(name: str, text: str, declaration: tuple[str, Sequence[int | str] | None]) -> Array:
    """The array of --input: of a .npy file, or of numbers with commas between them. Raises InputError."""
    try:
        values = numpy.array([float(part) for part in text.split(",")])
    except ValueError:
        return read_array(text)
    dtype, dimensions = declaration
    shape = values.shape if dimensions is None else tuple(d if isinstance(d, int) else 1 for d in dimensions)
    if math.prod(shape) != values.size:
        raise InputError(
            f"--input {name}={text}: input {name!r} is {dimensions_as_text(dimensions)}, not {values.size} numbers; "
            "give a .npy file"
        )
    return values.astype(dtype).reshape(shape)


def read_array(path: str) -> Array:
    """The array in a .npy file. Raises InputError naming the file."""
    try:
        check_regular(path)
        array = numpy.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path!r} is not a valid .npy file of numbers: {_reason(error)}") from error
    if not isinstance(array, numpy.ndarray):
        raise InputError(f"{path!r} contains several arrays; expected a .npy file, which contains one")
    return array


def read_case(path: str) -> dict[str, Array]:
    """Arrays by input name from a .npz file; a name may be written in:NAME, out:NAME is left out. Raises InputError."""
    try:
        check_regular(path)
        archive = numpy.load(path, allow_pickle=False)
        if isinstance(archive, numpy.ndarray):
            raise ValueError("it contains one array without a name")
        with archive:
            return {name.removeprefix("in:"): archive[name] for name in archive.files if not name.startswith("out:")}
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path!r} is not a valid .npz file of arrays: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Returns the reason of numpy's error, without its advice to load the file as a pickle, which could run code."""
    return "it has another format, or contains Python objects" if "pickle" in str(error) else str(error)
