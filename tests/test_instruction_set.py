"""The instruction set in the key of a CPU: two CPUs of one name have two keys, one CPU under two kernels has one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from imgconv.cl import drivers
from imgconv.cl import instruction_set as module
from imgconv.cl.device import DeviceInfo, select_device
from imgconv.cl.instruction_set import instruction_set, read_cpuinfo
from imgconv.loading.device_descriptions import read_device_description

COMMON = "fpu sse sse2 ssse3 sse4_1 sse4_2 fma movbe popcnt avx f16c abm bmi1 avx2 bmi2 erms"
AVX512 = "avx512f avx512dq avx512bw avx512vl avx512_fp16 amx_tile"


def x86(flags: str, model: int = 143, processors: int = 2) -> str:
    """The content of /proc/cpuinfo in a virtual machine."""
    lines = (
        "processor\t: {}", "vendor_id\t: GenuineIntel", "cpu family\t: 6", f"model\t\t: {model}",
        "model name\t: Intel(R) Xeon(R) Processor", "cpu MHz\t\t: 2600.{}", f"flags\t\t: {flags}", "bugs\t\t: its",
    )
    return "".join("\n".join(lines).replace("{}", str(number)) + "\n\n" for number in range(processors))


ARM = """\
processor	: 0
BogoMIPS	: 50.00
Features	: fp asimd aes sha1 atomics fphp asimdhp sve
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x1
CPU part	: 0xd40
"""
# Kernels of old phones have what all processors share at the end.
OLD_ARM = "Processor : AArch64 Processor rev 1 (aarch64)\nprocessor : 0\n\nprocessor : 1\n\nFeatures : fp asimd\n" + (
    "CPU implementer : 0x51\nCPU part : 0x800\nHardware : SM8150\n"
)
RISCV = "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdcv_zba\nmmu\t\t: sv39\n\nprocessor\t: 1\nisa\t: rv64imac\n"


def line(cpuinfo: str, floats: int = 16, variables: Mapping[str, str] = {}) -> str:
    return instruction_set(cpuinfo, "x86_64", floats, variables)


def test_a_line_says_what_it_depends_on() -> None:
    variables = {"CL_CONFIG_CPU_TARGET_ARCH": " core-avx2\n"}
    machine, family, model, flags, floats, setting = line(x86(COMMON), 8, variables).split(", ")
    assert (machine, family, model, floats) == ("x86_64", "cpu family 6", "model 143", "8 floats")
    assert flags.startswith("flags ") and len(flags) == 14 and setting == "CL_CONFIG_CPU_TARGET_ARCH=core-avx2"


def test_two_cpus_have_two_lines() -> None:
    lines = {
        line(x86(COMMON)), line(x86(f"{COMMON} {AVX512}")), line(x86(f"{COMMON} {AVX512} avx10_2")),
        line(x86(COMMON, model=207)), line(x86(COMMON), 8), line(x86(COMMON), 16, {"POCL_LLVM_CPU_NAME": "corei7"}),
        line(x86(COMMON), 16, {"CL_CONFIG_CPU_TARGET_ARCH": "corei7"}), line(ARM), line(ARM.replace("sve", "sve sve2")),
        line(ARM.replace("0xd40", "0xd4f")), line(OLD_ARM), line(RISCV), line(RISCV.replace("v_", "_")), line(""),
        instruction_set("", "aarch64", 16, {}),
    }
    assert len(lines) == 15


def test_one_cpu_has_one_line() -> None:
    """Another kernel or hypervisor shows other flags of its own, in another order, and other processors."""
    known = line(x86(COMMON))
    assert line(x86(f"{COMMON} hypervisor tsc_known_freq arch_capabilities")) == known
    assert line(x86(" ".join(reversed(COMMON.split())))) == known
    assert line(x86(COMMON, processors=1)) == known
    assert line("", 4) == "x86_64, 4 floats"


def test_the_first_processor_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "cpuinfo")
    assert read_cpuinfo.__wrapped__() == ""
    (tmp_path / "cpuinfo").write_bytes(x86(COMMON, processors=64).encode() + b"\xff")
    assert line(read_cpuinfo.__wrapped__()) == line(x86(COMMON))


def test_processes_that_build_compile_for_this_ones_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is loaded reads its settings no more; one of another process would."""
    name, set_first = drivers.CPU_VARIABLES[0], "corei7"
    monkeypatch.setattr(drivers, "cpu_variables", cache(drivers.cpu_variables.__wrapped__))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv(name, set_first)
    with drivers.make_drivers_visible():
        pass
    for changed in ("core-avx2", ""):
        monkeypatch.setenv(name, changed)
        assert drivers.environment_for("any")[name] == set_first and drivers.cpu_variables() == {name: set_first}
    monkeypatch.delenv(name)
    assert drivers.environment_for("any")[name] == set_first


@pytest.fixture
def cpu() -> DeviceInfo:
    phone = read_device_description("adreno_650")
    return dataclasses.replace(phone, kind="cpu", name="Xeon", platform="P", instruction_set=line(x86(COMMON)))


def test_keys_of_two_cpus_of_one_name(cpu: DeviceInfo) -> None:
    other = dataclasses.replace(cpu, instruction_set=line(x86(f"{COMMON} {AVX512}")))
    assert cpu.full_name == other.full_name and cpu.key != other.key
    assert cpu.key == f"{cpu.full_name} | {cpu.instruction_set}"


def test_a_gpu_is_keyed_by_its_name() -> None:
    phone = read_device_description("adreno_650")
    parts = (phone.platform, phone.name, phone.opencl_c_version, phone.driver_version)
    assert phone.instruction_set == "" and phone.key == phone.full_name == " | ".join(parts)


def test_a_device_is_not_chosen_by_its_instruction_set(cpu: DeviceInfo) -> None:
    """A part of a GPU's name may be there too: "arm" in "armv8l", "cpu" in "cpu family"."""
    gpu = dataclasses.replace(read_device_description("adreno_650"), index=1, name="cpu family")
    assert select_device("cpu family", (cpu, gpu)) is gpu
