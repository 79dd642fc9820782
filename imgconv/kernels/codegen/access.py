"""Generates the OpenCL source of loads and stores, for every kernel.

An `Emitter` collects the statements of one kernel or epilogue function. `load` reads an operand through its view, for
the four lanes of one output texel. If these lanes are the lanes of one input texel, or all are the same element, it
reads one texel; otherwise it reads four elements.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy

from imgconv.dtype import FLOAT16, FLOAT32, UINT8, UINT32, DType
from imgconv.graph.expression import Accuracy, Apply, Expression, MathMode, apply, literal_text, render
from imgconv.graph.index import Index, Lookup, Variable, constant, variable_index
from imgconv.graph.nodes import Operand
from imgconv.graph.quantization import BYTES, Quantization, before_rounding
from imgconv.graph.view import Bound, merged_bounds
from imgconv.kernels.layout import LANES, HostBuffer, Placement, Texture, Tiling

LANE = Variable("lane", LANES)
COMPONENTS = "xyzw"
SHORT_LIMIT = 32767  # the largest short


@dataclass(frozen=True)
class KernelArgument:
    """An image or buffer argument of a kernel."""

    name: str
    storage: Texture | HostBuffer
    written: bool = False

    @property
    def declaration(self) -> str:
        if isinstance(self.storage, HostBuffer):
            return f"__global {'' if self.written else 'const '}{self.storage.dtype.scalar} *{self.name}"
        return f"{image_type(self.storage, self.written)} {self.name}"


def image_type(texture: Texture, written: bool = False) -> str:
    """The OpenCL type of a kernel's argument for a texture, with its qualifiers: an image, or a pointer if linear."""
    if texture.tiling.linear:
        return f"__global {'' if written else 'const '}{texture.dtype.pointer} *"
    return f"{'write' if written else 'read'}_only {'image2d_array_t' if texture.tiling.layers > 1 else 'image2d_t'}"


def index_text(index: Index, helpers: list[str]) -> str:
    """Returns the OpenCL source of an index. Adds the tables that it uses to `helpers`.

    A position outside a table reads the nearest entry, as in `Index.evaluate`. The result is not used, because such a
    position is past the last channel, or a bound of the view does not hold.
    """

    def look_up(lookup: Lookup, position: str) -> str:
        name, definition = _constant_table(lookup.table)
        helpers.append(definition)
        if lookup.value.low < 0:
            position = f"max((int)({position}), 0)"
        if lookup.value.high >= len(lookup.table):
            position = f"min((int)({position}), {len(lookup.table) - 1})"
        return f"{name}[{position}]"

    return index.render(look_up)


def _constant_table(table: tuple[int, ...]) -> tuple[str, str]:
    """The name and the definition of a table."""
    kind = "short" if max(map(abs, table)) <= SHORT_LIMIT else "int"
    name = "table_" + hashlib.sha256(repr(table).encode()).hexdigest()[:12]
    entries = ", ".join(map(str, table))
    return name, guarded_definition(name, f"__constant {kind} {name}[{len(table)}] = {{{entries}}};\n")


def guarded_definition(name: str, definition: str) -> str:
    """A definition that several kernels of a program may share; the program contains it once."""
    return f"#ifndef HAVE_{name}\n#define HAVE_{name}\n{definition}#endif\n"


def named_function(prefix: str, kind: str, parameters: str, lines: Sequence[str]) -> tuple[str, str]:
    """The name, with a hash of the text, and the definition of a function. kind: its result. lines: its statements."""
    body = "".join(f"  {line}\n" for line in lines)
    rest = f"({parameters}) {{\n{body}}}\n"
    name = prefix + hashlib.sha256(rest.encode()).hexdigest()[:12]
    return name, guarded_definition(name, f"inline {kind} {name}{rest}")


def coordinates(tiling: Tiling) -> str:
    """The image coordinates, as OpenCL text, of the grid's texel at (x, y)."""
    x, y, layer = (index_text(e, []) for e in tiling.texel)
    return f"(int4)({x}, {y}, {layer}, 0)" if tiling.layers > 1 else f"(int2)({x}, {y})"


def read_function(
    texture: Texture, inside: bool = False, dtype: DType = FLOAT32, zeros: bool = True
) -> tuple[str, str]:
    """Returns the name and the definition of the function that reads a texel of a tiled or linear grid; zero outside
    the grid.

    dtype: the type of the result; if the grid is not linear, float, or uint for images of integers. For linear grids
    only: inside: every read is inside the grid. zeros: reads outside must return zero. If not, they return the nearest
    texel, because CPU compilers generate faster code for reads without branches.
    """
    tiling, kind, zero = texture.tiling, f"{dtype.scalar}4", "0" if dtype == UINT32 else "0.0f"
    if tiling.linear:
        load = texture.dtype.load
        if dtype != FLOAT32:
            load = "vload4(n, image)" if texture.dtype == dtype else f"convert_{kind}({load})"
        name = f"read_linear_{texture.dtype}_{tiling.width}x{tiling.height}"
        name += f"_as_{dtype.scalar}" if dtype != FLOAT32 else ""
        name += "_inside" if inside else "" if zeros else "_nearest"
        x, y = ("x", "y") if inside or zeros else (f"min(x, {tiling.width - 1})", f"clamp(y, 0, {tiling.height - 1})")
        body = f"const int n = {y} * {tiling.width} + {x};\n  return {load}"
    else:
        name = f"read_tiled_{_tiling_name(tiling)}"
        read = f"read_imagef(image, TEXEL, {coordinates(tiling)})"
        if dtype == UINT32:
            name, read = f"{name}_as_uint", read.replace("imagef", "imageui", 1)
        elif texture.quantization:
            name += f"_{_quantization_name(texture.quantization)}"
            read = _dequantizing_read(read, texture.quantization)
        body = f"return {read}"
    test = f"  if (x < 0 || x >= {tiling.width} || y < 0 || y >= {tiling.height}) return ({kind})({zero});\n"
    head = f"inline {kind} {name}({image_type(texture)} image, int x, int y) {{\n"
    return name, guarded_definition(name, f"{head}{'' if inside or not zeros else test}  {body};\n}}\n")


def write_function(texture: Texture, levels: bool = False) -> tuple[str, str]:
    """The name and the definition of the function that writes a texel of a tiled or linear grid.

    levels: see `_write_call`.
    """
    tiling = texture.tiling
    if tiling.linear:
        name = f"write_linear_{texture.dtype}_{tiling.width}x{tiling.height}"
        body = texture.dtype.store.format(f"y * {tiling.width} + x")
    else:
        name = f"write_tiled_{_tiling_name(tiling)}"
        if texture.quantization:
            name += f"_{_quantization_name(texture.quantization)}" + ("_unrounded" if levels else "")
        body = _write_call("image", coordinates(tiling), "value", texture.quantization, levels)
    head = f"inline void {name}({image_type(texture, True)} image, int x, int y, float4 value) {{\n"
    return name, guarded_definition(name, f"{head}  {body};\n}}\n")


# Levels of a quantised network. Their images are of integers.


def _dequantizing_read(read: str, quantization: Quantization) -> str:
    """The text of the numbers whose bytes a read_imagef reads."""
    made = f"convert_float4({levels_above_low(read.replace('read_imagef(', 'read_imageui(', 1), quantization)})"
    if quantization.low:
        made = f"({made} - {-quantization.low}.0f)"
    return made if quantization.scale == 1 else f"({made} * {literal_text(quantization.scale)})"


def levels_above_low(texel: str, quantization: Quantization) -> str:
    """The text of a uint4 of numbers less `low`, from 0 to 255. texel: of the bytes of an image."""
    return f"({texel} + {-quantization.low}u) & {BYTES - 1}u" if quantization.low else texel


def packed_levels(texel: str, quantization: Quantization, helpers: list[str]) -> str:
    """The text of a uint whose bytes are numbers less `low`, from 0 to 255. texel: a uint4 of the bytes of an image."""
    packed = f"packed_levels({texel})"
    if not quantization.low:
        return packed
    # Adds to all four bytes at once: their low bits do not reach the next byte.
    name, every = f"levels_from_minus_{-quantization.low}", 0x01010101
    low, high = (-quantization.low & 127) * every, (-quantization.low & 128) * every
    helpers.append(guarded_definition(name, (
        f"inline uint {name}(uint bytes) {{\n  return ((bytes & {127 * every:#x}u) + {low:#x}u) ^ "
        f"((bytes ^ {high:#x}u) & {128 * every:#x}u);\n}}\n"
    )))
    return f"{name}({packed})"


def packed_result(texel: str, quantization: Quantization, levels: bool) -> str:
    """The text of a uint whose bytes are the numbers of a float4 as levels, less `low`. levels: see `_write_call`."""
    made = f"as_uint4({_levels_as_integers(texel, quantization, levels)})"
    least = numpy.float32(ROUNDING + quantization.low).view(numpy.uint32) if levels else quantization.low
    return f"packed_levels({made} - {int(least) % 2**32}u)"


# Floats from ROUNDING - 2**22 to ROUNDING + 2**22 are ROUNDING plus an integer n. So adding ROUNDING rounds to the
# nearest integer, to even if there are two; and the last byte of the sum's bits is that of n.
ROUNDING = 1.5 * 2**23


def without_rounding(epilogue: Expression, output: Placement) -> Expression | None:
    """The epilogue with ROUNDING in place of its last steps, if these round to the levels of the output's texture."""
    quantization = output.storage.quantization if isinstance(output.storage, Texture) else None
    found = None if quantization is None else before_rounding(epilogue, quantization)
    if isinstance(found, Apply) and found.function == "multiply":
        return apply("multiply_add", *found.arguments, ROUNDING)
    return None if found is None else apply("add", found, ROUNDING)


def _write_call(image: str, where: str, numbers: str, quantization: Quantization | None, levels: bool = False) -> str:
    """The text that writes numbers to a texel, of an image of levels if there is a quantization.

    levels: the numbers are levels plus ROUNDING, of any size.
    """
    if quantization is None:
        return f"write_imagef({image}, {where}, {numbers})"
    made = f"as_uint4({_levels_as_integers(numbers, quantization, levels)})"
    return f"write_imageui({image}, {where}, {made} & {BYTES - 1}u)" if levels or quantization.low else (
        f"write_imageui({image}, {where}, {made})"
    )


def _levels_as_integers(numbers: str, quantization: Quantization, levels: bool) -> str:
    """The text of the levels of numbers, as integers; if `levels` (see `_write_call`), as floats with ROUNDING."""
    if levels:
        limits = ", ".join(literal_text(ROUNDING + limit) for limit in (quantization.low, quantization.high))
        return f"clamp({numbers}, {limits})"
    if quantization.scale != 1:
        numbers = f"{numbers} * {literal_text(1 / quantization.scale)}"
    return f"convert_int4_rte({numbers})"


def with_zero_lanes(texel: str, count: str, levels: bool) -> str:
    """The text of the first lanes of a texel, and what is stored as zero in the others. levels: see `_write_call`."""
    return f"fill_lanes({texel}, {count}, {literal_text(ROUNDING)})" if levels else f"keep_lanes({texel}, {count})"


def _quantization_name(quantization: Quantization) -> str:
    """The name of the function that reads levels, or a part of the name of one that reads numbers."""
    name = f"levels_from_{quantization.low}".replace("-", "minus_")
    digits = hashlib.sha256(repr(quantization.scale).encode()).hexdigest()[:8]
    return name if quantization.scale == 1 else f"{name}_{digits}"


def read_text(
    image: str, texture: Texture, helpers: list[str], inside: bool = False, dtype: DType = FLOAT32,
    centre: bool = False, past: tuple[bool, bool] = (True, True), before: bool = True,
) -> str:
    """Returns the source that reads texel (x, y) of a texture's grid. Adds a helper function that it calls to
    `helpers`.

    inside: every read is inside the grid, so none needs the sampler's border. dtype: the type of the result; uint
    returns the integers of an image of integers. centre: x and y are floats, the texel's centre; the texture must be an
    image of one tile. past: for x and for y, whether a read past the end of the grid must return zero. before: whether
    a read before its start must, or has x < 0.
    """
    tiling = texture.tiling
    if tiling.is_one_image:
        sampler, where = "" if inside else "TEXEL, ", "float2" if centre else "int2"
        # Before the first column and row the image always gives zero.
        x, y = (
            f"(({name}) < {size} ? ({name}) : -1)" if tested and not (tiling.bordered or inside) else name
            for name, size, tested in (("x", tiling.width, past[0]), ("y", tiling.height, past[1]))
        )
        place = f"{sampler}({where})({x}, {y}))"
        if dtype == UINT32:
            return f"read_imageui({image}, {place}"
        if texture.quantization is None:
            return f"read_image{dtype.scalar[0]}({image}, {place}"
        numbers = _dequantizing_read(f"read_imagef({image}, {place}", texture.quantization)
        return numbers if dtype == FLOAT32 else f"convert_{dtype.scalar}4({numbers})"
    name, definition = read_function(
        texture, inside and tiling.linear, dtype if tiling.linear or dtype == UINT32 else FLOAT32,
        before or any(past) or not tiling.linear,
    )
    helpers.append(definition)
    read = f"{name}({image}, x, y)"
    return read if tiling.linear or dtype in (FLOAT32, UINT32) else f"convert_{dtype.scalar}4({read})"


def write_text(
    image: str, texture: Texture, helpers: list[str], dtype: DType = FLOAT32, levels: bool = False
) -> str:
    """The text that writes `texel` at (x, y) of a texture's grid. Adds a helper function that it calls to `helpers`.

    dtype: of the texel. The texture must be one image if it is not float. levels: see `_write_call`.
    """
    if texture.tiling.is_one_image and texture.quantization:
        numbers = "texel" if dtype == FLOAT32 else "convert_float4(texel)"
        return _write_call(image, "(int2)(x, y)", numbers, texture.quantization, levels)
    if texture.tiling.is_one_image:
        return f"write_image{dtype.scalar[0]}({image}, (int2)(x, y), texel)"
    name, definition = write_function(texture, levels)
    helpers.append(definition)
    return f"{name}({image}, x, y, texel)"


def coordinate(index: Index, text: str) -> str:
    """Returns the source of a texel's coordinate.

    If the coordinate is a constant minus a variable, NVIDIA's compiler (580) makes it an offset of the read, and the
    read returns zero. The max prevents this.
    """
    return f"max({text}, -1)" if any(factor < 0 for _, factor in index.terms) else text


def _tiling_name(tiling: Tiling) -> str:
    t = tiling
    return f"{t.width}x{t.height}_by_{t.tile_width}x{t.tile_height}_{t.per_layer}{t.stacked_along}"


def accuracy_of(math_mode: MathMode, storage: Texture | HostBuffer) -> Accuracy:
    """The accuracy that a result stored there needs."""
    if math_mode == "kept in float":
        return "half" if storage.dtype == FLOAT16 else "most"
    return "half" if math_mode == "to halves" and storage.dtype == FLOAT16 else "all"


@dataclass
class Emitter:
    """The statements of one function body, with its helper functions, tables and arguments.

    math_mode: of the functions. prefix: of the names of variables and arguments. accuracy: of the results. lines: the
    statements. largest: the largest magnitude of an index.
    """

    math_mode: MathMode
    prefix: str = ""
    accuracy: Accuracy = "all"
    lines: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    arguments: list[KernelArgument] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    @classmethod
    def storing(cls, math_mode: MathMode, storage: Texture | HostBuffer, prefix: str = "") -> Emitter:
        """An Emitter for what is stored there."""
        return cls(math_mode, prefix, accuracy_of(math_mode, storage))

    # Arguments

    def argument(self, storage: Texture | HostBuffer) -> str:
        """The name of the read-only argument for a storage, added on first use."""
        for known in self.arguments:
            if known.storage == storage and not known.written:
                return known.name
        made = KernelArgument(f"{self.prefix}input{len(self.arguments)}", storage)
        self.arguments.append(made)
        return made.name

    # Text

    def index(self, expression: Index) -> str:
        return index_text(expression, self.helpers)

    def name(self, kind: str, text: str) -> str:
        """The name of a constant of type `kind` that holds `text`. The same text is computed once."""
        key = f"{kind} {text}"
        if key not in self._names:
            self._names[key] = f"{self.prefix}v{self._count}"
            self._count += 1
            self.lines.append(f"const {kind} {self._names[key]} = {text};")
        return self._names[key]

    def clear_names(self) -> None:
        """Forgets the names made so far, because the loop body that holds them has ended."""
        self._names.clear()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A context for a loop's body. Names made inside are forgotten at its end."""
        outer = dict(self._names)
        yield
        self._names = outer

    # Loads

    def load(self, operand: Operand, placement: Placement, axes: Mapping[Variable, Index]) -> str:
        """The name of a float4 with the operand at the four lanes. axes: the view's variables as kernel expressions."""
        return self._load_at(operand, placement, *_position(operand, placement, axes))

    def _load_at(
        self, operand: Operand, placement: Placement, position: list[Index], bounds: list[Bound],
        tests: Sequence[str] = (),
    ) -> str:
        """The name of a float4 with the elements at the four lanes: the fill value if a bound or a test fails."""
        if isinstance(placement.storage, HostBuffer):
            return self._gather_lanes(operand, placement, position, bounds, tests)
        bounds = [b for b in bounds if not b.always]
        if operand.fill == 0:
            bounds = [b for b in (_without_border(b, position, placement) for b in bounds) if not b.always]
        x, y, lane = placement.address(position)
        depends = any(LANE in e.variables() for e in (x, y, *(b.index for b in bounds)))
        if depends or (LANE in lane.variables() and lane != variable_index(LANE)):
            return self._gather_lanes(operand, placement, position, bounds, tests)
        texel = self.texel(placement.storage, x, y)
        if LANE not in lane.variables():
            texel = self.name("float4", f"(float4)({self._lane_of_texel(texel, lane)})")
        conditions = self._conjunction(bounds, tests)
        if conditions:
            texel = self.name("float4", f"{conditions} ? {texel} : (float4)({literal_text(operand.fill)})")
        return texel

    def _conjunction(self, bounds: Sequence[Bound], tests: Sequence[str]) -> str:
        """The text of a condition: whether every test and every bound holds; "" if there are none."""
        return " && ".join([*tests, *([self.condition(bounds)] if bounds else [])])

    def texel(self, storage: Texture, x: Index, y: Index) -> str:
        """The name of a float4 that holds a texel of the grid."""
        where_x, where_y = (coordinate(e, self.index(e)) for e in (x, y))
        image, tiling = self.argument(storage), storage.tiling
        inside = 0 <= x.low and x.high < tiling.width and 0 <= y.low and y.high < tiling.height
        if tiling.is_one_image:
            read = f"read_imagef({image}, {'' if inside else 'TEXEL, '}(int2)({where_x}, {where_y}))"
            if storage.quantization:
                read = _dequantizing_read(read, storage.quantization)
        else:
            function, definition = read_function(storage, inside and tiling.linear)
            self.helpers.append(definition)
            read = f"{function}({image}, {where_x}, {where_y})"
        # A byte is read as a number from 0 to 1, which drivers may round.
        bytes_ = storage.dtype == UINT8 and storage.quantization is None
        return self.name("float4", f"rint({read} * 255.0f)" if bytes_ else read)

    def gather(
        self, operand: Operand, placement: Placement, axes: Mapping[Variable, Index], indices: Mapping[Variable, str],
        uniform: bool,
    ) -> str:
        """Returns the name of a float4 with the operand at each lane's own indices, or the fill value if an index is
        out of range.

        axes: the view's other variables. indices: for each index variable, the float4 with its value in each lane.
        uniform: whether the lanes have equal indices, so that one texel may hold all four elements.
        """
        if uniform:
            at, tests = self._checked_indices(indices, 0)
            return self._load_at(operand, placement, *_position(operand, placement, axes, at), tests)
        parts = []
        for number in range(LANES):
            at, tests = self._checked_indices(indices, number)
            here = _position(operand, placement, axes, {**at, LANE: constant(number)})
            parts.append(self._lane_or_fill(operand, placement, *here, tests))
        return self.name("float4", f"(float4)({', '.join(parts)})")

    def _checked_indices(self, indices: Mapping[Variable, str], lane: int) -> tuple[dict[Variable, Index], list[str]]:
        """For each index variable, the index of a lane, 0 if it is out of range; and the tests that it is not."""
        at, tests = dict[Variable, Index](), []
        for variable, name in indices.items():
            value = f"{self.name('float4', f'rint({name})')}.{COMPONENTS[lane]}"
            tests.append(f"{value} >= 0.0f && {value} < {variable.size}.0f")
            chosen = self.name("int", f"{tests[-1]} ? {value} : 0")
            at[variable] = variable_index(Variable(chosen, variable.size))
        return at, tests

    def _gather_lanes(
        self, operand: Operand, placement: Placement, position: list[Index], bounds: list[Bound],
        tests: Sequence[str] = (),
    ) -> str:
        parts = []
        for number in range(LANES):
            at = {LANE: constant(number)}
            here = [e.substitute(at) for e in position]
            limits = [Bound(b.index.substitute(at), b.low, b.high) for b in bounds]
            parts.append(self._lane_or_fill(operand, placement, here, limits, tests))
        if len(set(parts)) == 1:
            return self.name("float4", f"(float4)({parts[0]})")
        return self.name("float4", f"(float4)({', '.join(parts)})")

    def _lane_or_fill(
        self, operand: Operand, placement: Placement, position: list[Index], bounds: list[Bound],
        tests: Sequence[str] = (),
    ) -> str:
        """The text of one element. It is the fill value if a bound or a test does not hold."""
        limits = merged_bounds(bounds)
        fill = literal_text(operand.fill)
        if any(b.never for b in limits):
            return fill
        element = self._element_text(placement, position)
        conditions = self._conjunction(limits, tests)
        return f"({conditions} ? {element} : {fill})" if conditions else element

    def _element_text(self, placement: Placement, position: list[Index]) -> str:
        storage = placement.storage
        if isinstance(storage, HostBuffer):
            flat = constant(0)
            for index, size in zip(position, storage.shape, strict=True):
                flat = flat * size + index
            return storage.dtype.element.format(self.argument(storage), self.index(flat))
        x, y, lane = placement.address(position)
        return self._lane_of_texel(self.texel(storage, x, y), lane)

    def _lane_of_texel(self, texel: str, lane: Index) -> str:
        if lane.is_constant:
            return f"{texel}.{COMPONENTS[lane.constant]}"
        return f"component({texel}, {self.index(lane)})"

    def condition(self, bounds: Sequence[Bound]) -> str:
        """The text of a condition: whether every bound holds."""
        tests = []
        for bound in bounds:
            text = self.index(bound.index)
            if bound.index.low < bound.low:
                tests.append(f"{text} >= {bound.low}")
            if bound.index.high >= bound.high:
                tests.append(f"{text} < {bound.high}")
        return f"({' && '.join(tests) or '1'})"

    # Elementwise work

    def compute(self, expression: Expression, arguments: Mapping[int, str], kind: str = "float4") -> str:
        """The text of an elementwise expression of named operands. kind: their type, float4 or half4."""
        self._count += 1
        statements, result = render(
            expression, arguments, self.math_mode, f"{self.prefix}t{self._count}_", self.accuracy, kind
        )
        self.lines.extend(statements)
        return result

    # Stores

    def store_result(
        self, epilogue: Expression, arguments: Mapping[int, str], placement: Placement, position: list[Index]
    ) -> None:
        """Stores an epilogue's result; `store` rounds it if it is of levels."""
        found = without_rounding(epilogue, placement)
        self.store(placement, position, self.compute(found or epilogue, arguments), found is not None)

    def store(self, placement: Placement, position: list[Index], value: str, levels: bool = False) -> None:
        """Writes a float4 to the four lanes of a position. Lanes past the end of the packed axis become zero.

        levels: see `_write_call`.
        """
        storage, packed = placement.storage, placement.layout.packed
        channel = constant(0) if packed is None else position[packed]
        size = placement.layout.channels(placement.shape)
        if isinstance(storage, HostBuffer):
            self._store_elements(storage, position, channel, size, value)
            return
        if size % LANES:
            first = self.index(channel.substitute({LANE: constant(0)}))
            value = with_zero_lanes(value, f"{size} - ({first})", levels)
        x, y, _ = placement.address([e.substitute({LANE: constant(0)}) for e in position])
        target = f"{self.index(x)}, {self.index(y)}"
        if storage.tiling.is_one_image:
            self.lines.append(f"{_write_call('output', f'(int2)({target})', value, storage.quantization, levels)};")
        else:
            function, definition = write_function(storage, levels)
            self.helpers.append(definition)
            self.lines.append(f"{function}(output, {target}, {value});")

    def _store_elements(
        self, storage: HostBuffer, position: list[Index], channel: Index, size: int, value: str
    ) -> None:
        value = self.name("float4", value)
        for number in range(LANES):
            at = {LANE: constant(number)}
            here = channel.substitute(at)
            if here.low >= size:
                continue
            flat = constant(0)
            for index, length in zip(position, storage.shape, strict=True):
                flat = flat * length + index.substitute(at)
            guard = f"if ({self.index(here)} < {size}) " if here.high >= size else ""
            part, where = f"{value}.{COMPONENTS[number]}", self.index(flat)
            self.lines.append(f"{guard}{storage.dtype.store_element.format('output', where, part)};")


def _position(
    operand: Operand, placement: Placement, axes: Mapping[Variable, Index], at: Mapping[Variable, Index] | None = None
) -> tuple[list[Index], list[Bound]]:
    """Returns the operand's index and bounds, with the view's variables replaced by `axes`, then by `at`."""
    def replaced(index: Index) -> Index:
        return index.substitute(axes) if at is None else index.substitute(axes).substitute(at)

    position = [replaced(e) for e in operand.view.index]
    bounds = [Bound(replaced(b.index), b.low, b.high) for b in operand.view.bounds]
    if isinstance(placement.storage, HostBuffer):
        # A buffer has no padding: lanes past the last channel must not be read.
        bounds += [Bound(e, 0, n) for e, n in zip(position, placement.storage.shape, strict=True)]
    return position, bounds


def _without_border(bound: Bound, position: list[Index], placement: Placement) -> Bound:
    """Returns the tests that remain of a bound where the image reads zero before the grid, or on both sides of it."""
    if not _is_zero_border(bound, position, placement):
        return bound
    low, high = min(bound.low, bound.index.low), max(bound.high, bound.index.high + 1)
    return Bound(bound.index, low, high if placement.texture.tiling.bordered else bound.high)


def _is_zero_border(bound: Bound, position: list[Index], placement: Placement) -> bool:
    """Returns whether every position at which the bound fails is outside the grid of an untiled texture.

    This is so for a bound on the outermost column axis or the outermost row axis, if it is exactly the axis' range.
    """
    storage = placement.texture
    if storage.tiling.tiles > 1:
        return False
    layout = placement.layout
    for axes in (layout.rows, layout.columns):
        long = [a for a in axes if storage.shape[a] > 1] or list(axes[-1:])
        if not long:
            continue
        axis = long[0]
        offset = position[axis].constant
        if position[axis] - offset == bound.index - bound.index.constant:
            shift = offset - bound.index.constant
            if bound.low + shift == 0 and bound.high + shift == storage.shape[axis]:
                return True
    return False
