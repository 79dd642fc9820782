"""imgconv: convolutional vision models on OpenCL GPUs, through RGBA textures.

    model = imgconv.load("model.onnx")
    outputs = model.run({"input": array})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imgconv.errors import (
    BuildError, ConfigError, DeviceError, Error, InputError, ModelError, ResourceError, UnsupportedError,
)
from imgconv.model import Model, load

if TYPE_CHECKING:
    from imgconv.export import export_onnx
else:

    def __getattr__(name: str) -> Any:
        """export_onnx, which needs onnx, is imported when it is first asked for."""
        if name == "export_onnx":
            from imgconv.export import export_onnx

            return export_onnx
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "BuildError", "ConfigError", "DeviceError", "Error", "InputError", "Model", "ModelError", "ResourceError",
    "UnsupportedError", "export_onnx", "load",
]
