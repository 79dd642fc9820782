"""BuildOptions: what a plan asks of a driver's compiler, beyond what the driver does by itself."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

WaveSize = Literal["unset", "full", "half"]
Switch = Literal["unset", "on", "off"]
ACCELERATE: dict[Switch, tuple[str, ...]] = {
    "unset": (), "on": ("-qcom-accelerate-16-bit=true",), "off": ("-qcom-accelerate-16-bit=false",),
}


@dataclass(frozen=True)
class BuildOptions:
    """Options for all programs of a plan. The defaults leave everything to the driver.

    wave_size: the width of the waves, by Qualcomm's attribute qcom_reqd_sub_group_size. accelerate_16_bit: Qualcomm's
    option -qcom-accelerate-16-bit. one_kernel_a_program: build each kernel as a program of its own.
    native/src/plan.cpp has the same in C++.
    """

    wave_size: WaveSize = "unset"
    accelerate_16_bit: Switch = "unset"
    one_kernel_a_program: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of the driver's compiler."""
        return ACCELERATE[self.accelerate_16_bit]

    @property
    def prelude(self) -> str:
        """The text before that of a program: it gives every kernel the attribute for the width of its waves."""
        if self.wave_size == "unset":
            return ""
        attribute = f'__attribute__((qcom_reqd_sub_group_size("{self.wave_size}")))'
        extension = "cl_qcom_reqd_sub_group_size"
        return (
            f"#ifdef {extension}\n#pragma OPENCL EXTENSION {extension} : enable\n#endif\n"
            f"#define __kernel {attribute} __kernel\n"
        )

    @property
    def is_known(self) -> bool:
        """Returns whether every value is one that is declared above."""
        known = self.wave_size in get_args(WaveSize) and self.accelerate_16_bit in get_args(Switch)
        return known and self.one_kernel_a_program in (False, True)

    def overridden_by(self, other: BuildOptions) -> BuildOptions:
        """Returns these options, replaced by those that are set in `other`."""
        changed = {each.name: getattr(other, each.name) for each in fields(other)}
        unset = vars(BuildOptions())
        return replace(self, **{name: value for name, value in changed.items() if value != unset[name]})

    def __str__(self) -> str:
        waves = () if self.wave_size == "unset" else (f"{self.wave_size} waves",)
        programs = ("one kernel per program",) if self.one_kernel_a_program else ()
        return ", ".join((*waves, *self.flags, *programs)) or "the driver's defaults"


DRIVERS_DEFAULTS = BuildOptions()
