"""A model's inputs: their declarations in the file, and the sizes given to symbolic dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy
import onnx

from imgconv.arrays import Array, Shapes
from imgconv.errors import InputError, ShapeError, UnsupportedError
from imgconv.graph.view import Shape
from imgconv.limits import current_budget
from imgconv.onnx_import.schema import ELEMENT_TYPES, dtype_name
from imgconv.tensor import Tensor

# Names that exporters write for an unknown size: Paddle2ONNX "?" and "-1", Keras and MMdnn "None". Numbered names are
# symbols: tf2onnx ("unk__12") and Paddle2ONNX ("p2o.DynamicDimension.0") give each unknown size its own name, ONNX's
# shape inference ("unk__0") gives equal sizes one name.
_NO_SYMBOLS = ("?", "-1", "None")


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that have no initializer."""
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in constants]


def read_inputs(values: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> Iterator[Tensor]:
    """The model's inputs as tensors, with sizes for symbolic dimensions as `import_onnx` says."""
    declared = {value.name: declaration(value) for value in values}
    symbols = {d for _, dimensions in declared.values() for d in dimensions or () if isinstance(d, str) and d}
    for key, given in shapes.items():
        _check_key(key, isinstance(given, Sequence), tuple(declared), tuple(sorted(symbols)))
    whole = {key: given for key, given in shapes.items() if isinstance(given, Sequence)}
    sizes = {key: _checked_size(key, given) for key, given in shapes.items() if key not in whole}
    for name, given in whole.items():
        sizes = {**_sizes_of(name, declared[name][1], given, sizes), **sizes}
    fixed = {name: _given_shape(name, declared[name][1], given) for name, given in whole.items()}
    for name, (dtype, dimensions) in declared.items():
        shape = fixed[name] if name in fixed else _declared_shape(name, dimensions, sizes)
        current_budget().check_tensor(shape, dtype)
        yield Tensor.input(name, shape, dtype)


def _check_key(key: str, is_shape: bool, inputs: Sequence[str], symbols: Sequence[str]) -> None:
    """Raises InputError if a key of `shapes` is neither an input with a shape nor a dimension with a size."""
    if key in (inputs if is_shape else symbols):
        return
    if key in inputs:
        raise InputError(f"shapes sets {key!r} to one size, but {key!r} is an input: pass its whole shape, as a tuple")
    if key in symbols:
        raise InputError(f"shapes sets {key!r} to a shape, but {key!r} is the name of a dimension: pass one number")
    raise InputError(
        f"shapes names {key!r}, but the model's inputs are {', '.join(map(repr, inputs)) or 'none'}"
        + (f" and its dimensions {', '.join(map(repr, symbols))}" if symbols else "")
    )


def declaration(value: onnx.ValueInfoProto) -> tuple[str, list[int | str] | None]:
    """(dtype, dimensions) of an input. A dimension is a size, a name or ""; dimensions is None if there is no shape."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedError(f"input {value.name!r} is not a tensor but a {kind or 'value of no type'}")
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if dtype not in ELEMENT_TYPES:
        raise UnsupportedError(f"input {value.name!r} is of type {dtype}; use one of {', '.join(ELEMENT_TYPES)}")
    if not tensor.HasField("shape"):
        return dtype, None
    dimensions = [d.dim_value if d.dim_value > 0 else d.dim_param for d in tensor.shape.dim]
    return dtype, ["" if d in _NO_SYMBOLS else d for d in dimensions]


def _checked_size(name: str, value: object, smallest: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or value < smallest:
        raise InputError(f"shapes sets {name!r} to the size {value!r}; a size is an integer of at least {smallest}")
    return int(value)


def size_clash(values: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> str:
    """Returns a text that names dimensions of one name to which `shapes` gives different sizes; "" without any.

    onnxruntime allows it, because exporters give unrelated dimensions a common name. So it is said only if the model
    cannot be read with these shapes.
    """
    found: dict[str, tuple[int, str]] = {
        name: (int(size), "shapes") for name, size in shapes.items() if not isinstance(size, Sequence)
    }
    for name, (_, dimensions) in ((value.name, declaration(value)) for value in values):
        given = shapes.get(name)
        if not isinstance(given, Sequence) or dimensions is None:
            continue
        for dimension, size in zip(dimensions, given):
            if isinstance(dimension, str) and dimension:
                first, giver = found.setdefault(dimension, (size, f"input {name!r}"))
                if first != size:
                    shown = f"shapes sets input {name!r} to {list(given)}, but the model has {_as_text(dimensions)}"
                    return f"{shown} and {dimension!r} is {first} in {giver}"
    return ""


def _sizes_of(
    name: str, dimensions: list[int | str] | None, shape: Sequence[int], sizes: Mapping[str, int]
) -> dict[str, int]:
    """The sizes of an input's named dimensions, for inputs whose shape is not given."""
    shape = _given_shape(name, dimensions, shape)
    return {d: n for d, n in zip(dimensions or (), shape) if isinstance(d, str) and d and d not in sizes}


def _given_shape(name: str, dimensions: list[int | str] | None, shape: Sequence[int]) -> Shape:
    """The shape given for an input, checked."""
    found = tuple(_checked_size(name, n, 0) for n in shape)
    if dimensions is None:
        return found
    problem = f"shapes sets input {name!r} to {list(found)}, but the model has {_as_text(dimensions)}"
    if len(found) != len(dimensions):
        raise InputError(problem)
    for size, dimension in zip(found, dimensions, strict=True):
        if isinstance(dimension, int) and dimension != size:
            raise InputError(problem)
    return found


def _declared_shape(name: str, dimensions: list[int | str] | None, sizes: Mapping[str, int]) -> Shape:
    """The declared shape with every symbolic dimension replaced."""
    if dimensions is None:
        raise ShapeError(
            f"input {name!r} has no shape in the model; pass one, such as shapes={{{name!r}: (1, 3, 224, 224)}}"
        )
    shape = []
    for axis, dimension in enumerate(dimensions):
        size = dimension if isinstance(dimension, int) else sizes.get(dimension, 1 if axis == 0 else 0)
        if not size:
            by_name = f" or shapes={{{dimension!r}: 224}}" if dimension else ""
            raise ShapeError(
                f"input {name!r} is {_as_text(dimensions)}: the size of axis {axis} is unknown. Pass it, as "
                f"shapes={{{name!r}: {_example_shape(dimensions)}}}{by_name}"
            )
        shape.append(size)
    return tuple(shape)


def _example_shape(dimensions: Sequence[int | str]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 if axis == 0 else 224 for axis, d in enumerate(dimensions))


def _as_text(dimensions: Sequence[int | str]) -> str:
    return f"[{', '.join(str(d) or '?' for d in dimensions)}]"


def input_as_constant(tensor: Tensor, known: Array) -> Tensor:
    """An input as a constant of its dtype. Raises InputError unless it is exact or from float to float."""
    content = known.astype(tensor.dtype)
    if not (tensor.is_float and known.dtype.kind == "f") and not numpy.array_equal(content, known):
        raise InputError(f"input {tensor.name!r} has dtype {known.dtype}, the model expects {tensor.dtype}")
    return Tensor.constant(content)
