"""Settings. This is the only module that reads imgconv's environment variables; each `load` reads them once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeGuard

from imgconv.dtype import FLOAT16, FLOAT32, DType
from imgconv.errors import ConfigError

Float16 = Literal[0, 1, 2]  # see Config


# How a convolution sums its products: in float, in half in short runs that are added in float, or wholly in half.
Accumulation = Literal["float", "runs", "half"]
PRODUCTS: Mapping[Accumulation, DType] = {"float": FLOAT32, "runs": FLOAT16, "half": FLOAT16}
ACCUMULATORS: Mapping[Accumulation, DType] = {"float": FLOAT32, "runs": FLOAT32, "half": FLOAT16}


@dataclass(frozen=True)
class Precision:
    """The values that stay wider than float16 asks for, by the names of inputs and of nodes' outputs after the passes.

    storage: values in float textures; their nodes keep float weights and compute in float. arithmetic: values in half
    textures whose nodes compute in float; under float16=1 all nodes do. runs: values whose nodes sum short runs of
    products in half, and the runs in float; all other nodes sum in half. large_tiles: values whose convolutions may use
    Winograd's F(4x4, 3x3). reasons: why values are in `storage`. small_weights: whether constants of few numbers are
    half too; see compiling/textures.py.

    Precision(storage=frozenset({"conv1"}))
    """

    storage: frozenset[str] = frozenset()
    arithmetic: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    large_tiles: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    small_weights: bool = False

    def with_float_values(self, names: frozenset[str], reason: str) -> Precision:
        """The Precision that keeps these values in float too."""
        reasons = {**dict.fromkeys(sorted(names), reason), **self.reasons}
        return replace(self, storage=self.storage | names, reasons=reasons)

    def sums_of(self, name: str) -> Accumulation:
        """Returns the width in which a value's node sums under float16=2."""
        if name in self.storage or name in self.arithmetic:
            return "float"
        return "runs" if name in self.runs else "half"


@dataclass(frozen=True)
class Config:
    """The settings by which a model is compiled.

    float16: 0 stores and computes float, 1 stores half and computes float, 2 computes the products and sums of
    convolutions in half too (environment: FLOAT16).
    native_explog: use the device's native_exp, native_log and native_recip (NATIVE_EXPLOG).
    max_image: an upper limit for image width and height in texels, below the device's own (IMGCONV_MAX_IMAGE). With it,
    textures are images on CPUs too.
    device: index or part of the name of the device to use (IMGCONV_DEVICE).
    precision: what keeps float under float16; imgconv.precision chooses it, or reads it from a file.

    Config(float16=1, device="Adreno")
    """

    float16: Float16 = 0
    native_explog: bool = False
    max_image: int | None = None
    device: str | None = None
    precision: Precision = Precision()

    @property
    def storage(self) -> DType:
        """The type of values in textures, where nothing speaks against it."""
        return FLOAT16 if self.float16 else FLOAT32

    @property
    def products(self) -> DType:
        """The type of a convolution's products, where nothing speaks against it."""
        return FLOAT16 if self.float16 == 2 else FLOAT32


def read_config(
    float16: int | bool | None = None,
    native_explog: bool | None = None,
    max_image: int | None = None,
    device: str | int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Each setting from its argument, else from the environment, else its default. Raises ConfigError.

    environment: os.environ by default.

    read_config(environment={"FLOAT16": "2"}).float16                   # 2
    read_config(float16=1, environment={"FLOAT16": "2"}).float16        # 1
    """
    env = os.environ if environment is None else environment
    if float16 is None:
        float16 = _integer(env, "FLOAT16")
    mode = int(float16)
    if not is_float16(mode):
        raise ConfigError(
            f"FLOAT16={mode}: use 0 (fp32), 1 (fp16 storage) or 2 (fp16 storage and arithmetic)"
        )
    if native_explog is None:
        value = _integer(env, "NATIVE_EXPLOG")
        if value not in (0, 1):
            raise ConfigError(f"NATIVE_EXPLOG={value}: use 0 or 1")
        native_explog = bool(value)
    if max_image is None:
        max_image = _integer(env, "IMGCONV_MAX_IMAGE") or None
    if max_image is not None and max_image < 8:
        raise ConfigError(f"IMGCONV_MAX_IMAGE={max_image}: an image needs a limit of at least 8 texels")
    return Config(mode, native_explog, max_image, read_device(device, env))


def is_float16(value: object) -> TypeGuard[Float16]:
    return type(value) is int and value in (0, 1, 2)


def read_device(device: str | int | None = None, environment: Mapping[str, str] | None = None) -> str | None:
    """Index or part of the name of the device to use; None if neither the argument nor the environment has one.

    read_device(0)                                              # "0"
    read_device(environment={"IMGCONV_DEVICE": "Adreno"})       # "Adreno"
    """
    env = os.environ if environment is None else environment
    return env.get("IMGCONV_DEVICE") or None if device is None else str(device)


def _integer(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "").strip()
    try:
        return int(text or "0")
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not an integer") from None
