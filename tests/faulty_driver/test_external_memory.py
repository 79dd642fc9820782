"""Frames in dma-bufs, for which files in memory stand, on a driver that imports them in each way."""

from __future__ import annotations

from pathlib import Path

from faulty_driver import met, run_python

LINES = """
import gc, mmap, os
import numpy, imgconv
from imgconv import Plane, VideoFrame
from imgconv.cl.external_memory import WAYS
from imgconv.tensor import Tensor, build_graph
from faulty_driver import set_faults

BYTES = 8192
x, z = Tensor.input("x", (1, 3, 20, 24)), Tensor.input("z", (24,))
graph = build_graph({"y": x.maximum(-1e9), "w": z * 2}, [x, z])

def opened(fault):
    set_faults("adreno;" + fault)
    file = os.memfd_create("frame")
    os.ftruncate(file, BYTES)
    return imgconv.load(graph, check=False).preprocess((40, 48), "nv12", input="x"), file

def frame_of(data):
    planes = [Plane(data, 60, offset=3), Plane(data, 64, offset=3000)]
    return VideoFrame(planes, 56, 44, mirror=True, region=(4, 2, 48, 40))

def refused(kind, work, text):
    try:
        work()
    except kind as error:
        assert text in str(error), error
    else:
        assert False, text

random = numpy.random.default_rng(0)
for fault in ("external_memory", "dmabuf_host_ptr", "ion_host_ptr", "arm_import"):
    model, file = opened(fault)
    shared = numpy.frombuffer(mmap.mmap(file, BYTES), numpy.uint8)
    memory, small = model.import_dma_buf(file, BYTES), model.import_dma_buf(file, 96)
    refused(imgconv.InputError, lambda: model.import_dma_buf(file, BYTES + 1), "has 8192 bytes")
    os.close(file)
    refused(imgconv.InputError, lambda: model.import_dma_buf(file, BYTES), "not a dma-buf")
    for content in random.integers(0, 64, (2, BYTES), numpy.uint8):
        shared[:] = content
        expected = model.run({"picture": frame_of(content), "z": content[:96].view("f4")})
        found = model.run({"picture": frame_of(memory), "z": small})
        assert all(found[name].tobytes() == array.tobytes() for name, array in expected.items())
        model.run({"picture": frame_of(memory), "z": small}, {"w": small})
        assert shared[:96].tobytes() == expected["w"].tobytes()
    several = VideoFrame([Plane(memory), Plane(content)], 48, 40)
    refused(imgconv.InputError, lambda: model.run({"picture": several, "z": small}), "use one buffer")
    given = {"picture": frame_of(memory), "z": content[:96].view("f4")}
    refused(imgconv.InputError, lambda: model.submit(given), "run()")
    short = VideoFrame([Plane(small), Plane(small)], 48, 40)
    refused(imgconv.InputError, lambda: model.run({"picture": short, "z": small}), "plane 0 has 96 bytes")
    del memory, small, found, several, short, given
    gc.collect()
model, file = opened("")
for text in (*WAYS, "Model.mapped"):
    refused(imgconv.DeviceError, lambda: model.import_dma_buf(file, BYTES), text)
"""


def test_frames_of_others(tmp_path: Path) -> None:
    """Their bytes are read where they are, as they are when a run begins, and a run may write there."""
    done = run_python(LINES, "adreno", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.removeprefix("import by ") for line in met(tmp_path)] == [
        *["cl_khr_external_memory_dma_buf"] * 2, *["dmabuf_host_ptr"] * 2, *["ion_host_ptr"] * 2,
        *["clImportMemoryARM, 40b4"] * 2,
    ]
