"""Compiles OpenCL C with Mesa's freedreno compiler and reads its statistics; needs no Adreno."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import platformdirs

from imgconv.errors import Error
from imgconv.kernels.kernel_source import COMMON
from imgconv.reports import terminal

DEFAULT_FOLDER = "~/.cache/adreno-mesa"
# This Mesa links no function of OpenCL for products of bytes, but has the instruction of SPIR-V. The 0 says that each
# operand is four bytes in 32 bits.
DOT_PRODUCT, DOT_PRODUCT_FUNCTION = "#define DOT_PRODUCT 2\n", """\
#define cl_qcom_dot_product8 1
int __attribute__((overloadable)) __spirv_SUDotKHR(uint, uint, int);
#define qcom_dot8_acc(w, x, sum) ((sum) + __spirv_SUDotKHR(w, x, 0))
"""
INTEGER_COORDINATES = "VTN_CL_INT_COORD_FETCH"
PROCESSES = 2
HOW_TO = """\
no Mesa build in {folder} (ADRENO_MESA names another). What is needed, once for each machine:
  1. Mesa 25.0 with -Dgallium-drivers=freedreno -Dgallium-rusticl=true -Dtools=drm-shim -Dvulkan-drivers= (LLVM, libclc,
     the SPIRV-LLVM translator, bindgen and Rust are needed to build it), patched so that ir3 appends a line of JSON for
     each compiled kernel variant to the file that IR3_STATS_FILE names: its name, registers, waves, spills, and for
     each block the loop depth, issue slots, texture reads and instructions by category
  2. lib/libRusticlOpenCL.so.1 and lib/libfreedreno_noop_drm_shim.so of that build, and icd/rusticl.icd with the path of
     the first"""

# Builds each program named on stdin and answers with a line, so that after a crash the program is known.
CHILD = """
import sys, warnings
warnings.simplefilter("ignore")
import pyopencl
devices = [d for p in pyopencl.get_platforms() if p.name == "rusticl" for d in p.get_devices()]
context = pyopencl.Context(devices[:1])
for path in sys.stdin.read().split("\\n"):
    try:
        pyopencl.Program(context, open(path).read()).build(cache_dir=False)
        print("built", flush=True)
    except pyopencl.Error as error:
        print("failed " + " ".join(str(error).split())[:300], flush=True)
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel's machine code. listing: as Mesa's disassembler prints it. error: why there is none."""

    statistics: Mapping[str, Any] = field(default_factory=dict)
    listing: str = ""
    error: str = ""


@dataclass(frozen=True)
class Mesa:
    """A build of Mesa. integer_coordinates: whether reads take integer coordinates."""

    folder: Path
    integer_coordinates: bool

    def compile(self, texts: Sequence[str], gpus: Sequence[int]) -> dict[int, dict[str, Kernel]]:
        """The kernels by GPU and text. They are kept on disk."""
        total = len(texts) * len(gpus)
        done = dict.fromkeys(gpus, 0)
        interrupted = Event()
        with terminal.ProgressSpinner("compiling for Adreno") as progress, ThreadPoolExecutor(PROCESSES) as pool:

            def one(gpu: int) -> dict[str, Kernel]:
                found: dict[str, Kernel] = {}
                while not interrupted.is_set() and (waiting := [text for text in texts if text not in found]):
                    found |= self._known(waiting, gpu) or self._compile(waiting[:32], gpu)
                    done[gpu] = len(found)
                    progress(sum(done.values()), total, "compiling for Adreno")
                return found

            try:
                return dict(zip(gpus, pool.map(one, gpus), strict=True))
            except BaseException:
                interrupted.set()
                raise

    def kernel(self, text: str, gpu: int) -> Kernel:
        """A kernel's machine code. Raises Error if it does not compile."""
        found = self.compile([text], [gpu])[gpu][text]
        if found.error:
            raise Error(found.error)
        return found

    def _cache_file(self, text: str, gpu: int) -> Path:
        library = (self.folder / "lib" / "libRusticlOpenCL.so.1").stat()
        parts = [gpu, self.integer_coordinates, library.st_size, library.st_mtime_ns, _whole(text, "k")]
        name = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
        return Path(platformdirs.user_cache_dir("imgconv"), "adreno_code", f"{name}.json")

    def _known(self, texts: Sequence[str], gpu: int) -> dict[str, Kernel]:
        files = {text: self._cache_file(text, gpu) for text in texts}
        return {text: Kernel(**json.loads(file.read_text())) for text, file in files.items() if file.exists()}

    def _compile(self, texts: Sequence[str], gpu: int) -> dict[str, Kernel]:
        """Compiles texts until the compiler crashes or all are done; at least one has a result then."""
        found: dict[str, Kernel] = {}
        with tempfile.TemporaryDirectory(prefix="imgconv-adreno-") as folder:
            paths = [Path(folder, f"k{number}.cl") for number in range(len(texts))]
            for number, (path, text) in enumerate(zip(paths, texts, strict=True)):
                path.write_text(_whole(text, f"k{number}"), encoding="utf-8")
            statistics = Path(folder, "statistics.json")
            child = subprocess.run(
                [sys.executable, "-c", CHILD], input="\n".join(map(str, paths)), env=self._environment(gpu, statistics),
                capture_output=True, text=True,
            )
            answers = child.stdout.splitlines()
            lines = statistics.read_text().splitlines() if statistics.exists() else []
            variants = [json.loads(line) for line in lines]
            listings = _listings(child.stderr)
            # Kernels that differ in numbers alone have one SHA-1. They are printed in the order of their statistics.
            for variant in variants:
                alike = listings[variant["sha1"]]
                variant["listing"] = alike.pop(0) if len(alike) > 1 else alike[0]
        if child.returncode and not answers and "rusticl" not in child.stderr and child.returncode > 0:
            raise Error(f"Mesa in {self.folder} does not start: {child.stderr.strip()[-600:]}")
        for number, text in enumerate(texts[: len(answers) + bool(child.returncode)]):
            answer = answers[number] if number < len(answers) else f"failed Mesa's compiler died ({child.returncode})"
            # One variant takes any global offset; if there are two, the second is for the usual launch.
            made = [v for v in variants if v["kernel"] in (f"k{number}", f"__wrapped_k{number}") and not v["internal"]]
            if answer == "built" and made:
                statistics = made[:2][-1]
                listing = statistics.pop("listing")
                found[text] = Kernel(statistics, listing)
            else:
                found[text] = Kernel(error=answer.removeprefix("failed "))
            _write(self._cache_file(text, gpu), json.dumps(vars(found[text])))
        return found

    def _environment(self, gpu: int, statistics: Path) -> dict[str, str]:
        made = {
            **os.environ, "OCL_ICD_VENDORS": str(self.folder / "icd"), "RUSTICL_ENABLE": "freedreno",
            "FD_GPU_ID": str(gpu), "LD_PRELOAD": str(self.folder / "lib" / "libfreedreno_noop_drm_shim.so"),
            "IR3_STATS_FILE": str(statistics), "MESA_SHADER_CACHE_DISABLE": "true", "PYOPENCL_NO_CACHE": "1",
            "RUSTICL_FEATURES": "fp16", "IR3_SHADER_DEBUG": "cs",
        }
        made.pop(INTEGER_COORDINATES, None)
        return made | ({INTEGER_COORDINATES: "1"} if self.integer_coordinates else {})


def find_mesa(integer_coordinates: bool) -> Mesa:
    """The build that ADRENO_MESA names. Raises Error with instructions if there is none."""
    folder = Path(os.environ.get("ADRENO_MESA", DEFAULT_FOLDER)).expanduser()
    wanted = ("icd/rusticl.icd", "lib/libRusticlOpenCL.so.1", "lib/libfreedreno_noop_drm_shim.so")
    if not all((folder / name).exists() for name in wanted):
        raise Error(HOW_TO.format(folder=folder))
    return Mesa(folder, integer_coordinates)


def _listings(printed: str) -> dict[str, list[str]]:
    """The machine code that Mesa printed, by its SHA-1, in the order of printing."""
    found: dict[str, list[str]] = {}
    for each in printed.replace("MESA: info: ", "").split("Native code for ")[1:]:
        found.setdefault(each.partition("sha1 ")[2][:40], []).append(each.partition("\nNIR ")[0])
    return found


def _write(file: Path, content: str) -> None:
    """Writes a file of the cache, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(content)
    part.replace(file)


def _whole(text: str, name: str) -> str:
    function = DOT_PRODUCT_FUNCTION if DOT_PRODUCT in text else ""
    return f"{COMMON.read_text(encoding='utf-8')}{function}#define NAME {name}\n{text}"
