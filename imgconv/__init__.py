"""imgconv: convolutional vision models on OpenCL GPUs, through RGBA textures.

    model = imgconv.load("model.onnx")
    outputs = model.run({"input": array})       # both: numpy arrays by name
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from imgconv.errors import (
    BuildError, ConfigError, ContentError, DataDependentError, DeviceError, Error, InputError, LimitExceededError,
    MissingPackageError, ModelError, RangeError, ResourceError, ShapeError, UnsupportedError,
)
from imgconv.version import VERSION

if TYPE_CHECKING:
    from imgconv import ops
    from imgconv.limits import Limits
    from imgconv.model import Model, load
    from imgconv.onnx_export import export_onnx
    from imgconv.preprocessing.video_frame import Plane, VideoFrame
else:
    _MODULES = {
        "Limits": "imgconv.limits", "Model": "imgconv.model", "load": "imgconv.model",
        "export_onnx": "imgconv.onnx_export", "Plane": "imgconv.preprocessing.video_frame",
        "VideoFrame": "imgconv.preprocessing.video_frame",
    }

    def __getattr__(name: str) -> Any:
        """Imports these and `ops` at their first use, so that the command line starts at once."""
        if name == "ops":
            return import_module("imgconv.ops")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


__version__ = VERSION
__all__ = [
    "BuildError", "ConfigError", "ContentError", "DataDependentError", "DeviceError", "Error", "InputError",
    "LimitExceededError", "Limits", "MissingPackageError", "Model", "ModelError", "Plane", "RangeError",
    "ResourceError", "ShapeError", "UnsupportedError", "VideoFrame", "export_onnx", "load", "ops",
]
