"""Every error that imgconv raises on purpose.

    Error                    whatever imgconv refuses or cannot do
    ├── ConfigError          a setting has a value that it cannot have: an environment variable or an argument
    ├── ModelError           the model file is broken, or is not what it claims to be: .file, .node
    │   └── UnsupportedError the model is fine, but uses something that imgconv does not do
    │       └── ContentError it could, if it knew what an input holds: .inputs
    ├── InputError           an array given to a model has the wrong name, shape or dtype
    │   └── ShapeError       the model does not say how large an input is, and nobody else did
    ├── RangeError           an output of integers cannot be told: a number on the way to it is not exact
    └── DeviceError          no driver, no such device, or the driver refused
        ├── ResourceError    a texture or memory that cannot be had: .tensor, .shape, .limit
        └── BuildError       the driver cannot compile a kernel: .source, .log

A message says what is wrong, where, and what to do about it, in one line; only those of DeviceError and BuildError may
have several, with the devices there are and with a driver's log.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with what is no printable character escaped, as repr does: a node may be called "a\\nb"."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class Error(Exception):
    """Whatever imgconv refuses or cannot do: the parent of every error here."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class ConfigError(Error):
    """A setting has a value that it cannot have."""


class ModelError(Error):
    """The model is broken.

    ``file`` is the model's path and ``node`` the name of the operator at fault; each is empty if it is not known.
    """

    def __init__(self, message: str, file: str = "", node: str = "") -> None:
        self.message = message
        self.file = file
        self.node = node
        super().__init__(message, file, node)

    def __str__(self) -> str:
        where = [f"file {self.file!r}"] * bool(self.file) + [f"node {self.node!r}"] * bool(self.node)
        return one_line(f"{', '.join(where)}: {self.message}" if where else self.message)


class UnsupportedError(ModelError):
    """The model is fine, but uses something that imgconv does not do."""


class ContentError(UnsupportedError):
    """A node needs to know at load what depends on ``inputs`` of the model: a shape, pads, a trip count."""

    def __init__(self, message: str, file: str = "", node: str = "", inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message, file, node)
        self.inputs = inputs
        self.args = (message, file, node, inputs)


class InputError(Error):
    """An array given to a model has the wrong name, shape or dtype."""


class ShapeError(InputError):
    """The model does not say how large an input is, and nobody else did."""


class RangeError(Error):
    """An output of integers cannot be told: a number on the way to it is not exact in a device's floats."""


class DeviceError(Error):
    """No OpenCL driver, no such device, or the driver refused."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class ResourceError(DeviceError):
    """A texture or memory that cannot be had.

    ``tensor`` is the name of the tensor it was for (empty if it is not known), ``shape`` what was asked for
    (its unit is in the message), and ``limit`` what the device allows, in words.
    """

    def __init__(self, message: str, tensor: str = "", shape: tuple[int, ...] = (), limit: str = "") -> None:
        self.message = message
        self.tensor = tensor
        self.shape = shape
        self.limit = limit
        super().__init__(message, tensor, shape, limit)

    def __str__(self) -> str:
        where = f"tensor {self.tensor!r}: " if self.tensor else ""
        limit = f" (limit: {self.limit})" if self.limit else ""
        return one_line(f"{where}{self.message}{limit}")


class BuildError(DeviceError):
    """The driver cannot compile a kernel.

    ``source`` names the kernel's source (the path of its .cl file), ``log`` is what the driver said, and ``excerpt``
    holds the numbered source lines near each error (empty if the log names no line).
    """

    def __init__(self, source: str, log: str, excerpt: str = "") -> None:
        self.source = source
        self.log = log
        self.excerpt = excerpt
        super().__init__(source, log, excerpt)

    def __str__(self) -> str:
        lines = f"\n\nnear the error, line numbers as in the log:\n{self.excerpt}" if self.excerpt else ""
        return f"{one_line(self.source)}: the driver cannot build this kernel source; its log:\n{self.log}{lines}"
