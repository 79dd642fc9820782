"""Videos and cameras, read by PyAV, which is an extra: pip install 'imgconv[video]'."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator

from PIL import Image

from imgconv.errors import InputError, MissingPackageError

SUFFIXES = frozenset(
    ".3gp .avi .flv .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .ts .webm .wmv .y4m".split()
)
PATIENCE = 20.0  # seconds without a frame from an address
CAMERA = re.compile(r"/dev/video\d+")


def is_video(path: str) -> bool:
    """Returns whether a path is a video, by its suffix, a camera (/dev/video0) or a stream (rtsp://host/stream)."""
    return os.path.splitext(path)[1].lower() in SUFFIXES or bool(CAMERA.fullmatch(path)) or "://" in path


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
            raise InputError(f"{path!r} gave nothing for {PATIENCE:g} seconds") from error
        raise InputError(f"cannot read {what} {path!r}: {getattr(error, 'strerror', None) or error}") from error
