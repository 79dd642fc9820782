"""imgconv: convolutional vision models on OpenCL GPUs, through RGBA textures.

    model = imgconv.load("model.onnx")
    outputs = model.run({"input": array})
"""

from __future__ import annotations

from imgconv.errors import (
    BuildError, ConfigError, DeviceError, Error, InputError, ModelError, ResourceError, UnsupportedError,
)
from imgconv.model import Model, load

__version__ = "0.1.0"
__all__ = [
    "BuildError", "ConfigError", "DeviceError", "Error", "InputError", "Model", "ModelError", "ResourceError",
    "UnsupportedError", "load",
]
