"""Every error that imgconv raises on purpose.

    Error                           whatever imgconv refuses or cannot do
    ├── ConfigError                 a setting has a value that it cannot have: an environment variable or an argument
    ├── ModelError                  the model file is broken, or is not what it claims to be: .file, .node
    │   └── UnsupportedError        the model is fine, but uses something that imgconv does not do
    │       ├── ContentError        a node needs to know at load what an input holds: .inputs
    │       ├── DataDependentError  what must be constant depends on data
    │       └── LimitExceededError  a bound is passed: load(..., limits=Limits(...)) allows more
    ├── InputError                  an array given to a model, or an argument of a Tensor's method, does not fit
    │   └── ShapeError              the size of an input is not known: neither the model nor the caller gives it
    ├── RangeError                  an output of integers is not known: an integer that it depends on is not exact
    ├── MissingPackageError         a package that only some tasks need is not installed: .package
    └── DeviceError                 no driver, no such device, or the driver refused
        ├── ResourceError           a texture or memory cannot be allocated: .tensor, .shape, .limit
        └── BuildError              the driver cannot compile a kernel: .source, .launch, .status, .log

A message says in one line what is wrong, in which place, and what to do about it. Only those of DeviceError and
BuildError may have several lines: the list of devices, or a driver's log.

    try:
        model = imgconv.load("model.onnx")
    except imgconv.UnsupportedError as error:
        print(error.file, error.node)
    except imgconv.Error as error:
        print(error)
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text on one line, its unprintable characters escaped as repr does: a node's name may hold a line feed.

    one_line("a" + chr(10) + "b") == r"a\\nb"
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class Error(Exception):
    """The parent of every error here: whatever imgconv refuses or cannot do.

    `except imgconv.Error` catches all that imgconv raises on purpose.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


class ConfigError(Error):
    """A setting has a value that it cannot have, as in load("model.onnx", float16=3)."""


class ModelError(Error):
    """The model is broken.

    ``file`` is the model's path and ``node`` the name of the operator at fault; each is empty if it is not known.
    For a text file that is called broken.onnx, load raises it with file == "broken.onnx" and node == "".
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
    """The model is valid, but uses something that imgconv does not do.

    Example: StringNormalizer, which works on text; ``node`` is the name of that node.
    """


class ContentError(UnsupportedError):
    """A node needs to know at load what depends on ``inputs`` of the model: a shape, pads, a trip count.

    Example: a Reshape whose shape is the input "shape". `Model.run` compiles the model for the content given; before
    the first run `Model.plan` raises this, with inputs == ("shape",).
    """

    def __init__(self, message: str, file: str = "", node: str = "", inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message, file, node)
        self.inputs = inputs
        self.args = (message, file, node, inputs)


class DataDependentError(UnsupportedError):
    """A value that must be constant depends on data, and the host does not compute it either.

    Example: a ConvTranspose whose kernel is an input. What the host can compute is no error unless load(strict=True).
    """


class LimitExceededError(UnsupportedError):
    """A model passes one of its `Limits`, or a bound that keeps a load short: load(..., limits=...) allows more."""


class InputError(Error):
    """An array given to a model has the wrong name, shape or dtype: model.run({"z": x}) if the input's name is "x".

    So has an argument of a Tensor's method, where a network is written: x.conv2d(weight) if weight takes 3 channels and
    x has 8.
    """


class ShapeError(InputError):
    """The size of an input is not known: neither the model nor the caller gives it.

    Example: `Model.plan` of a model with the input (1, 3, "height", "width"), before its first run. Remedy:
    load("model.onnx", shapes={"height": 480, "width": 640}).
    """


class RangeError(Error):
    """An output of integers is not known: an integer that it depends on is not exact in a device's floats.

    Example: x * x of int32 with an element 5000, because 25000000 is above 2**24.
    """


class MissingPackageError(Error, ImportError):
    """A package that only some tasks need is not installed: ``package``. The message has pip's command line.

    Example: loading an ONNX file if only the base package is installed, which reads compiled files.
    """

    def __init__(self, package: str, extra: str, task: str) -> None:
        self.package = package
        self.args = (package, extra, task)

    def __str__(self) -> str:
        package, extra, task = self.args
        return f"{task} needs the package {package}, which is not installed: pip install 'imgconv[{extra}]'"


class DeviceError(Error):
    """No OpenCL driver, no such device, or the driver refused.

    Example: load("model.onnx", device="no such name"); the message lists the devices.
    """

    def __str__(self) -> str:
        return Exception.__str__(self)


class ResourceError(DeviceError):
    """A texture or memory cannot be allocated.

    ``tensor`` is the name of the tensor it was for (empty if it is not known), ``shape`` what was asked for
    (its unit is in the message), and ``limit`` what the device allows, in words: "1x1 to 16384x16384 texels, 2048
    layers".
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

    ``source`` names the kernel's source (the path of its .cl file), ``launch`` the launch of the plan that needs it
    (empty if the program has several kernels), ``status`` is OpenCL's (0 if it is not known), ``log`` what the driver
    said, and ``excerpt`` holds the numbered source lines near each error (empty if the log names no line). It names a
    fault in imgconv or in the driver, not in the model: report it with the log.
    """

    def __init__(self, source: str, log: str, excerpt: str = "", launch: str = "", status: int = 0) -> None:
        self.source = source
        self.log = log
        self.excerpt = excerpt
        self.launch = launch
        self.status = status
        super().__init__(source, log, excerpt, launch, status)

    def __str__(self) -> str:
        where = f"{self.source}, launch {self.launch}" if self.launch else self.source
        status = f", status {self.status}" if self.status else ""
        log = f"its log:\n{self.log}" if self.log.strip() else "its log is empty"
        lines = f"\n\nnear the error, line numbers as in the log:\n{self.excerpt}" if self.excerpt else ""
        return f"{one_line(where)}: the driver cannot build this kernel source{status}; {log}{lines}"
