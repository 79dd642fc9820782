"""Arguments that several commands share: the model, its sizes, how it is compiled, how pictures are preprocessed."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from imgconv.arrays import Shapes, TensorSpecs
from imgconv.errors import InputError
from imgconv.loading.device_descriptions import known_devices
from imgconv.preprocessing.preparation import FILTERS, ORDERS, RESIZES


SHAPE_HELP = "sizes of an input, such as x=1,3,224,224, or of one symbolic dimension, such as height=224"
FLOAT16_HELP = "store textures as fp16 where the outputs tolerate it (default: FLOAT16)"


def add_model_arguments(parser: argparse.ArgumentParser, compiled: bool = True) -> None:
    """MODEL and the other arguments of imgconv.load. compiled: whether it may be a file of imgconv compile."""
    kinds = "an ONNX or compiled file" if compiled else "an ONNX file"
    parser.add_argument("model", metavar="MODEL", help=kinds)
    parser.add_argument(
        "--shape", metavar="NAME=SIZES", type=parse_name_and_value, action="append", default=[],
        help=SHAPE_HELP,
    )
    add_setting_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_setting_arguments(parser: argparse.ArgumentParser) -> None:
    """--device, --float16, --native-explog and --max-image, as read_config takes them."""
    add_device_argument(parser)
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--float16", action=yes_or_no, help=FLOAT16_HELP)
    parser.add_argument(
        "--native-explog", action=yes_or_no,
        help="use the device's native exp, log and division (default: NATIVE_EXPLOG)"
    )
    parser.add_argument(
        "--max-image", type=int, metavar="TEXELS",
        help="for tests: a limit on image sizes, below the device's (default: IMGCONV_MAX_IMAGE)"
    )


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """--device, as `imgconv.cl.device.select_device` takes it."""
    parser.add_argument(
        "--device",
        help="index in imgconv devices, or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU)"
    )


def add_precision_argument(parser: argparse.ArgumentParser) -> None:
    """--precision, the file with the values that stay fp32."""
    parser.add_argument(
        "--precision", metavar="FILE",
        help="choice of fp16 and fp32 for each value: a file from imgconv tune --precision"
    )


def add_strict_argument(parser: argparse.ArgumentParser) -> None:
    """--strict, which refuses a model that needs the host."""
    parser.add_argument(
        "--strict", action="store_true", help="reject a model if the host has to compute part of it"
    )


def add_target_argument(parser: argparse.ArgumentParser) -> None:
    """--target, descriptions of devices that need not be present."""
    parser.add_argument(
        "--target", action="append", default=[], metavar="FILE",
        help="plan for another device: a file written there by `imgconv devices --json`, or one of "
        f"{', '.join(known_devices())}; repeat the option for several devices",
    )


def parse_name_and_value(text: str) -> tuple[str, str]:
    """NAME=VALUE as (NAME, VALUE)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def number(text: str) -> float:
    """A number, or a fraction such as 1/255."""
    above, _, below = text.partition("/")
    try:
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def count(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 0")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(number(part) for part in text.split(","))


def read_shapes(pairs: Sequence[tuple[str, str]], declared: TensorSpecs) -> Shapes:
    """The shapes of --shape: all sizes of an input, or one size of a symbolic dimension. Raises InputError."""
    shapes: dict[str, Sequence[int] | int] = {}
    for name, text in pairs:
        try:
            sizes = tuple(int(part) for part in text.split(","))
        except ValueError:
            raise InputError(f"--shape {name}={text}: sizes are integers separated by commas") from None
        dimensions = declared[name][1] if name in declared else None
        if dimensions is not None and len(dimensions) != len(sizes):
            raise InputError(f"--shape {name}={text}: input {name!r} is {dimensions_as_text(dimensions)}")
        shapes[name] = sizes if name in declared or len(sizes) > 1 else sizes[0]
    return shapes


def read_sizes(pairs: Sequence[tuple[str, str]], declared: TensorSpecs) -> list[Shapes]:
    """The shapes of --shape for each size: names that are given several times have one shape for each of these.

        read_sizes([("h", "224"), ("h", "320"), ("w", "640")], declared)    # h 224 and w 640; h 320 and w 640

    Raises InputError.
    """
    counts = Counter(name for name, _ in pairs)
    most = max(counts.values(), default=1)
    odd = next((name for name, count in counts.items() if count not in (1, most)), None)
    if odd is not None:
        given_counts = f"--shape {odd} is given {counts[odd]} times, another name {most} times"
        raise InputError(f"{given_counts}: give each name once, or once per size")
    given: dict[str, list[str]] = {}
    for name, text in pairs:
        given.setdefault(name, []).append(text)
    chosen = [[(name, texts[number % len(texts)]) for name, texts in given.items()] for number in range(most)]
    return [read_shapes(each, declared) for each in chosen]


def check_sizes(declared: TensorSpecs, shapes: Shapes) -> None:
    """Raises InputError for the first size that neither the model nor `shapes` gives; an unknown batch is 1."""
    for name, (_, dimensions) in declared.items():
        unknown = dimensions is None or any(isinstance(d, str) and d not in shapes for d in dimensions[1:])
        if unknown and name not in shapes:
            usual = (1, 3, 224, 224) if dimensions is None else (1, *[224] * (len(dimensions) - 1))
            sizes = [d if isinstance(d, int) else n for d, n in zip(dimensions or usual, usual, strict=True)]
            example = ",".join(map(str, sizes))
            raise InputError(
                f"input {name!r} is {dimensions_as_text(dimensions)}: its size is unknown; "
                f"pass it, such as --shape {name}={example}"
            )


def dimensions_as_text(dimensions: Sequence[int | str] | None) -> str:
    """Dimensions as text: [1, 3, height, ?]."""
    return "of unknown shape" if dimensions is None else f"[{', '.join(str(d) or '?' for d in dimensions)}]"


def add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the preparation of a picture, and arrays for the other inputs.

    What is not given is None: the model's description decides, then its head, then Preparation's default.
    """
    before = parser.add_argument_group("preprocessing")
    before.add_argument(
        "--resize", choices=RESIZES,
        help="stretch: fill the model's size (default); crop: cover it and keep the centre; letterbox: fit the picture "
        "into it, at the top left",
    )
    before.add_argument(
        "--crop", type=number, metavar="PART",
        help="the fraction of each side that --resize crop keeps; 0.875 scales to 256 and keeps 224 (default: 1)",
    )
    before.add_argument(
        "--filter", choices=FILTERS,
        help="antialias: average all source pixels that an output pixel covers, with triangle weights (default); area: "
        "with equal weights; bicubic: with cubic weights; bilinear: interpolate between the four nearest, as OpenCV",
    )
    before.add_argument(
        "--pad", type=int, metavar="PIXEL", help="value of the pixels around a letterboxed picture (default: 114)"
    )
    before.add_argument(
        "--order", choices=ORDERS, help="channel order (default: rgb; for a model with one channel y, the luma)"
    )
    before.add_argument("--scale", type=number, help="a number or a fraction such as 1/255 (default: inferred, else 1)")
    before.add_argument(
        "--mean", type=numbers, metavar="MEAN", help="one value, or one per channel, such as 104,117,123 (default: 0)"
    )
    before.add_argument("--std", type=numbers, metavar="STD", help="one value, or one per channel (default: 1)")
    before.add_argument(
        "--input", type=parse_name_and_value, action="append", default=[], metavar="NAME=FILE.npy",
        help="the value of an input other than the picture, from a file or as numbers, such as threshold=0.5"
    )
