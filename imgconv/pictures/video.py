"""Reads and writes videos and cameras with PyAV, which is an extra: pip install 'imgconv[video]'."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy
from PIL import Image, ImageOps

from imgconv.errors import InputError, MissingPackageError

SUFFIXES = frozenset(
    ".3gp .avi .flv .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .ts .webm .wmv .y4m".split()
)
PATIENCE = 20.0  # seconds without a frame from an address
USUAL_RATE = Fraction(25)  # frames a second of a video that is made of pictures
CAMERA = re.compile(r"/dev/video\d+")


def is_video(path: str) -> bool:
    """Returns whether a path is a video, by its suffix, a camera (/dev/video0) or a stream (rtsp://host/stream)."""
    return os.path.splitext(path)[1].lower() in SUFFIXES or bool(CAMERA.fullmatch(path)) or "://" in path


def is_video_file(path: str) -> bool:
    """Returns whether a path is a video, by its suffix, and can be written."""
    return os.path.splitext(path)[1].lower() in SUFFIXES and "://" not in path


def frames(path: str) -> Iterator[tuple[int, Callable[[], Image.Image]]]:
    """The frames of a video or camera: the number of each, from 0, and what makes an RGB picture of it.

    Raises InputError if it cannot be read, MissingPackageError without PyAV.
    """
    try:
        import av
    except ImportError as error:
        raise MissingPackageError("av", "video", f"reading the video {path!r}") from error
    since = time.monotonic()
    what = "camera" if CAMERA.fullmatch(path) else "address" if "://" in path else "video"
    try:
        with av.open(
            path, format="v4l2" if what == "camera" else None, timeout=PATIENCE if what == "address" else None
        ) as container:
            if not container.streams.video:
                raise InputError(f"{path!r} has no pictures, only sound")
            container.streams.video[0].thread_type = "AUTO"
            for number, frame in enumerate(container.decode(video=0)):
                yield number, frame.to_image
                since = time.monotonic()
    except (av.FFmpegError, OSError) as error:
        if what == "address" and time.monotonic() - since >= PATIENCE:
            raise InputError(f"{path!r} returned nothing for {PATIENCE:g} seconds") from error
        raise InputError(f"cannot read {what} {path!r}: {getattr(error, 'strerror', None) or error}") from error


def check_writable(path: str) -> None:
    """Raises MissingPackageError if videos cannot be written, without PyAV."""
    try:
        import av  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("av", "video", f"writing the video {path!r}") from error


def frame_rate_of(path: str) -> Fraction:
    """Returns the frames a second of a video; USUAL_RATE of what does not tell them, and of pictures."""
    if not is_video_file(path):
        return USUAL_RATE
    import av

    try:
        with av.open(path) as container:
            return Fraction(container.streams.video[0].average_rate or USUAL_RATE)
    except (av.FFmpegError, OSError, IndexError):
        return USUAL_RATE  # reading its frames says what is wrong


class VideoWriter:
    """Writes pictures as the frames of a video, in the codec that its suffix usually has.

        with VideoWriter("out.mp4", Fraction(30)) as video:
            video.add(picture)

    The first picture's size is the video's, made even; others are fitted into it.
    """

    def __init__(self, path: str, rate: Fraction) -> None:
        self._path, self._rate = path, rate
        self._container: Any = None
        self._stream: Any = None
        self._size = (0, 0)

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._container.mux(self._stream.encode())
        if self._container is not None:
            self._container.close()

    def add(self, picture: Image.Image) -> None:
        """Writes one more frame. Raises InputError."""
        import av

        try:
            if self._stream is None:
                self._size = picture.size
                self._container = av.open(self._path, "w")
                self._stream = self._container.add_stream(self._container.default_video_codec, rate=self._rate)
                self._stream.width, self._stream.height = (side + side % 2 for side in picture.size)
                self._stream.pix_fmt = "yuv420p"
            fitted = picture if picture.size == self._size else ImageOps.pad(picture, self._size)
            even = Image.new("RGB", (self._stream.width, self._stream.height))
            even.paste(fitted.convert("RGB"))
            self._container.mux(self._stream.encode(av.VideoFrame.from_ndarray(numpy.asarray(even), "rgb24")))
        except (av.FFmpegError, OSError, ValueError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> InputError:
        return InputError(f"cannot write the video {self._path!r}: {getattr(error, 'strerror', None) or error}")
