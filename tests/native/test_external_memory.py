"""Frames in memory of others, which the player imports without a copy, on a driver that offers it in each way."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import faulty_driver
import numpy
from graphs import assert_near
from played import Play, assert_same_bits

import imgconv
from imgconv.tensor import Tensor, build_graph

ADRENO = faulty_driver.ROOT / "imgconv" / "loading" / "devices" / "adreno_640.json"
SIZE, BYTES = (48, 40), 8192
# Faults that offer an extension, what is imported by it, and what the log says then.
WAYS = (
    ("external_memory", "dma_buf", "import by cl_khr_external_memory_dma_buf"),
    ("dmabuf_host_ptr", "dma_buf", "import by dmabuf_host_ptr"),
    ("ion_host_ptr", "dma_buf", "import by ion_host_ptr"),
    ("arm_import", "dma_buf", "import by clImportMemoryARM, 40b4"),
    ("ahardwarebuffer_host_ptr", "hardware_buffer", "import by ahardwarebuffer_host_ptr"),
    ("arm_import", "hardware_buffer", "import by clImportMemoryARM, 41e2"),
)
LINES = """
    import mmap
    from player import _array, _arrays
    driver = ctypes.CDLL(os.path.join(os.environ["OCL_ICD_VENDORS"], "libfaulty_driver.so"))

    def open_with(fault):
        driver.faulty_driver_set(b"adreno;" + fault.encode())
        return Player("m", check=False, cache=".")

    def imported(model, kind, file, shared, bytes=BYTES):
        memory, handle = ctypes.c_void_p(), ctypes.c_int(file) if kind == "dma_buf" else shared.ctypes
        call(f"imgconv_import_{kind}", model._model, handle, ctypes.c_size_t(bytes), ctypes.byref(memory))
        return memory

    def refused(status, work, *given):
        try:
            work(*given)
        except PlayerError as error:
            assert error.status == status, error
            return error.message
        assert False, given

    z = numpy.zeros(24, "f4")

    def run(model, picture, z=_array(z), memory=None):
        made = model._new_outputs()
        wanted = _arrays(made.values())
        if memory:
            wanted[0] = Array(None, made["y"].nbytes, memory, None)
        call("imgconv_run", model._model, *counted((Array * 2)(picture, z)), *counted(wanted))
        return made

    def frame_in(memory, content):
        frame = VideoFrame.of(FRAME)
        for plane in frame.planes:
            plane.data, plane.memory = None, memory
        return frame

    contents = given["content"]
    for number, (fault, kind, _) in enumerate(WAYS):
        model, file = open_with(fault), os.memfd_create("frame")
        os.ftruncate(file, BYTES)
        shared = numpy.frombuffer(mmap.mmap(file, BYTES), numpy.uint8)
        memory = imported(model, kind, file, shared)
        if kind == "dma_buf":
            assert "has 8192 bytes" in refused("ARGUMENT", imported, model, kind, file, shared, BYTES + 1)
            os.close(file)
            assert "is not open" in refused("ARGUMENT", imported, model, kind, file, shared)
        for turn, content in enumerate(contents):
            shared[:] = content
            name = f"{number} {turn} "
            uploaded = run(model, _array(VideoFrame.of(FRAME)), _array(content[: z.nbytes].view("f4")))
            results[name + "frame uploaded"], results[name + "array uploaded"] = uploaded["y"], uploaded["w"]
            found = run(model, _array(frame_in(memory, content)), Array(None, z.nbytes, memory, None))
            results[name + "frame"], results[name + "array"] = found["y"], found["w"]
            given = dict(picture=frame_in(memory, content), z=z)
            results[name + "submit"] = model.wait(model.submit(given))["y"]
            run(model, _array(given["picture"]), memory=memory)
            results[name + "output"] = shared.view("f4")[: found["y"].size].reshape(found["y"].shape).copy()
        call("imgconv_release_memory", model._model, memory)
        assert "not imported" in refused("ARGUMENT", call, "imgconv_release_memory", model._model, memory)
        model.close()
    file, model = os.memfd_create("frame"), open_with("")
    os.ftruncate(file, BYTES)
    for kind in ("dma_buf", "hardware_buffer"):
        results[kind] = numpy.array(refused("UNSUPPORTED", imported, model, kind, file, shared))
"""


def test_memory_of_others(play: Play, environment: dict[str, str], tmp_path: Path) -> None:
    """Its bytes are read where they are, as they are when a run begins; a run may write there too."""
    x, z = Tensor.input("x", (1, 3, 20, 24)), Tensor.input("z", (24,))
    model = imgconv.load(build_graph({"y": x.maximum(-1e9), "w": z * 2}, [x, z]))
    model = model.preprocess((SIZE[1], SIZE[0]), "nv12", input="x")
    model.save(tmp_path / "m", targets=[ADRENO])
    random = numpy.random.default_rng(0)
    content = random.integers(0, 64, (2, BYTES), numpy.uint8)  # no number that is not finite, as floats
    about = "[(content, 3, 60, 0), (content, 3000, 64, 0)], 56, 44, 0, 1, (4, 2, 48, 40)"
    lines = f"import os\nSIZE, BYTES, WAYS = {SIZE}, {BYTES}, {WAYS}\n" + dedent(LINES).replace("FRAME", about)
    variables = environment | faulty_driver.variables("adreno", tmp_path)
    found = play(lines, {"content": content}, **variables)
    for kind, name in (("dma_buf", "cl_khr_external_memory_dma_buf"), ("hardware_buffer", "cl_qcom_android_ahardware")):
        text = str(found.pop(kind))
        assert all(each in text for each in (f"its driver has none of {name}", "as data of its planes")), text
    for turn, frame in enumerate(content):
        planes = [imgconv.Plane(frame, 60, 0, 3), imgconv.Plane(frame, 64, 0, 3000)]
        shown = imgconv.VideoFrame(planes, 56, 44, mirror=True, region=(4, 2, *SIZE))
        for number in range(len(WAYS)):
            name = f"{number} {turn} "
            right = found[name + "frame uploaded"]
            assert_near(right, model.run({"picture": shown, "z": numpy.zeros(24, "f4")})["y"])
            expected = {"frame": right, "submit": right, "output": right, "array": found[name + "array uploaded"]}
            assert_same_bits({each: found[name + each] for each in expected}, expected)
    assert faulty_driver.met(tmp_path) == [log for _, _, log in WAYS]
