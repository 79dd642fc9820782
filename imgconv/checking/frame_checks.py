"""Checks the kernel that reads camera frames, by comparing it with numpy: strides, rotation, mirroring and regions."""

from __future__ import annotations

import json

import numpy

from imgconv.arrays import Array
from imgconv.checking.comparing import LaunchVerdict
from imgconv.checking.session_checks import ADVICE, PROVED, VERSION, is_tested_driver
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.plan import Launch
from imgconv.errors import DeviceError
from imgconv.files.disk_cache import hash_of
from imgconv.kernels.kernel_source import KernelSource
from imgconv.preprocessing.preparation import Format, Size
from imgconv.preprocessing.stage import PICTURE, array_dtype, array_shape, chroma_block, size_of_array
from imgconv.preprocessing.video_frame import FILE, LAYOUTS, PackedFrame, Plane, PlaneLayout, VideoFrame, sample_bytes
from imgconv.runtime.session import Session
from imgconv.stored.frame_table import frame_kernel, takes_frames

TURNS = ((0, False), (90, True), (180, False), (270, True))  # degrees, and whether the frame is mirrored
GAP = 5  # bytes after each row


def check_frames_once(session: Session, format: Format | None) -> None:
    """Checks the kernel that reads frames of a format, unless it is proved on this driver. Raises DeviceError."""
    info = session.context.info
    if format is None or not takes_frames(session.plan, format) or is_tested_driver(info):
        return
    source = frame_launch(session, format).source
    key = hash_of(json.dumps([VERSION, info.key, source.key, source.global_size]).encode()).hex()
    if PROVED.read(key) is not None:
        return
    found = check_frames(session, format)
    if found.verdict == "wrong":
        raise DeviceError(
            f"launch {found.launch}, kernel {found.kernel}: {found.text}. {info.name}, driver {info.driver_version} "
            f"computes it wrongly, and there is no other kernel for it. {ADVICE}"
        )
    PROVED.write(key, json.dumps({"left": []}).encode())


def frame_launch(session: Session, format: Format) -> Launch:
    """The launch that reads frames, for reports: it is in no plan."""
    plan = session.plan
    value = next(each for each in plan.inputs if each.name == PICTURE)
    kernel = frame_kernel(format, value.shape, plan.input_buffers[PICTURE])
    source = KernelSource(kernel.text, FILE.name, (), (kernel.items,), None)
    return Launch(f"frames of {format}", "pack", source, "read a frame by its strides")


def check_frames(session: Session, format: Format) -> LaunchVerdict:
    """The verdict on the kernel that reads frames, which are turned, mirrored and cut out of memory with gaps."""
    launch = frame_launch(session, format)
    place, memory, context = session.plan.input_buffers[PICTURE], session.memory, session.context
    value = next(each for each in session.plan.inputs if each.name == PICTURE)
    samples = 0
    with shutdown_guard, context.lock:
        context.wait_for_failed_runs()
        for rotation, mirror in TURNS:
            frame = random_frame(format, size_of_array(format, value.shape), rotation, mirror)
            wanted = picture_of(frame, format)
            other = (wanted ^ 1).astype(place.dtype).reshape(place.shape)  # what a lost launch leaves
            uploading = memory.upload(place, numpy.ascontiguousarray(other))
            context.finish()
            del uploading
            events = session.read_frame(place, PackedFrame.from_frame(frame, format))
            context.finish()
            del events
            found = memory.content(place).reshape(-1)
            samples += wanted.size
            wrong = numpy.flatnonzero(found != wanted.reshape(-1))
            if len(wrong):
                at, turned = int(wrong[0]), f"rotation {rotation}{', mirrored' if mirror else ''}"
                text = f"element {at} of {list(value.shape)} is {found[at]:g}, not {wanted.reshape(-1)[at]}; {turned}"
                return LaunchVerdict(launch.name, FILE.name, "wrong", text, samples)
    return LaunchVerdict(launch.name, FILE.name, "right", "", samples)


def random_frame(format: Format, size: Size, rotation: int, mirror: bool) -> VideoFrame:
    """A frame of random bytes with gaps between rows, with a region of this picture's size.

    That of a mirrored one begins between pixels that share a color, so that colors are averaged.
    """
    random = numpy.random.default_rng(rotation)
    width, height = size[::-1] if rotation % 180 else size
    whole, layout = (width + 4, height + 2), LAYOUTS[format][-1]
    planes = []
    for number, stride in enumerate(layout.pixel_strides):
        shared = chroma_block(format) if number else (1, 1)
        columns, rows = whole[0] // shared[0], whole[1] // shared[1]
        pitch = columns * stride + GAP
        planes.append(Plane(random.integers(0, 256, GAP + rows * pitch, numpy.uint8), pitch, offset=GAP))
    begin = 1 if mirror else 2
    return VideoFrame(planes, *whole, rotation, mirror, (begin, begin, width, height))


def picture_of(frame: VideoFrame, format: Format) -> Array:
    """The array of the picture that a frame shows, by numpy."""
    layout, shared = LAYOUTS[format][-1], chroma_block(format)
    left, top, width, height = frame.window
    shown = []
    for number in range(len(layout.components)):
        component = _component_samples(frame, format, layout, number)[top : top + height, left : left + width]
        turned = numpy.rot90(component, -frame.rotation // 90)
        shown.append(turned[:, ::-1] if frame.mirror else turned)
    shape, dtype = array_shape(format, frame.picture_size), array_dtype(format)
    if shared == (1, 1):
        return numpy.stack(shown, axis=2).astype(dtype).reshape(shape)
    rows, columns = frame.picture_size[1] // shared[1], frame.picture_size[0] // shared[0]
    colors = [
        numpy.floor(each.reshape(rows, shared[1], columns, shared[0]).mean((1, 3)) + 0.5) for each in shown[1:]
    ]
    if format == "yuyv":
        return numpy.stack([shown[0][:, ::2], colors[0], shown[0][:, 1::2], colors[1]], 2).astype(dtype).reshape(shape)
    after = numpy.stack(colors, 0 if format == "i420" else 2)
    return numpy.concatenate([shown[0].ravel(), after.ravel()]).astype(dtype).reshape(shape)


def _component_samples(frame: VideoFrame, format: Format, layout: PlaneLayout, number: int) -> Array:
    """The samples of a component, one for each pixel of the frame."""
    component = layout.components[number]
    plane, (across, down) = frame.planes[component.plane], chroma_block(format) if number else (1, 1)
    memory, step = plane.bytes(), layout.pixel_strides[component.plane] * component.pixels
    rows, columns = numpy.arange(frame.height) // down, numpy.arange(frame.width) // across
    places = plane.offset + component.offset + rows[:, None] * plane.row_stride + columns * step
    bytes = memory.astype(numpy.int64)
    samples: Array = bytes[places] + (256 * bytes[places + 1] if sample_bytes(format) == 2 else 0)
    return samples
