"""The exception tree, and what the messages say."""

from __future__ import annotations

import copy
import pickle

import pytest

from imgconv import errors

PARENTS = {
    "Error": Exception,
    "ConfigError": errors.Error,
    "ModelError": errors.Error,
    "UnsupportedError": errors.ModelError,
    "ContentError": errors.UnsupportedError,
    "DataDependentError": errors.UnsupportedError,
    "LimitExceededError": errors.UnsupportedError,
    "InputError": errors.Error,
    "ShapeError": errors.InputError,
    "RangeError": errors.Error,
    "MissingPackageError": errors.Error,
    "DeviceError": errors.Error,
    "ResourceError": errors.DeviceError,
    "BuildError": errors.DeviceError,
}

SAMPLES = (
    errors.ConfigError("FLOAT16 is 3; use 0, 1 or 2"),
    errors.ModelError("no such input", file="a.onnx", node="Conv_3"),
    errors.UnsupportedError("Loop is not supported", node="Loop_1"),
    errors.ContentError("pads must be constant", node="Pad_1", inputs=("pads",)),
    errors.DataDependentError("B must be constant", node="MatMul_1"),
    errors.LimitExceededError("more than 10000 nodes", file="a.onnx"),
    errors.ShapeError("the size of axis 2 is not known"),
    errors.MissingPackageError("onnx", "onnx", "reading an ONNX file"),
    errors.ResourceError("too wide", tensor="mask", shape=(1, 5, 99999), limit="16384 texels"),
    errors.BuildError("conv.cl", "3:1: error: no", ">    3 | x", "'y' (nodes Conv_3)", -11),
)


def test_tree_is_complete() -> None:
    classes = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    assert {name: each.__bases__[0] for name, each in classes.items()} == PARENTS


def test_docstring_draws_every_class() -> None:
    for name in PARENTS:
        assert name in (errors.__doc__ or "")


def test_model_error_says_where() -> None:
    assert str(errors.ModelError("broken", file="a.onnx", node="Conv_3")) == "file 'a.onnx', node 'Conv_3': broken"
    assert str(errors.ModelError("broken", node="Conv_3")) == "node 'Conv_3': broken"
    assert str(errors.ModelError("broken", file="a.onnx")) == "file 'a.onnx': broken"
    assert str(errors.ModelError("broken")) == "broken"


def test_resource_error_names_tensor_and_limit() -> None:
    error = errors.ResourceError("too wide", tensor="mask", shape=(1, 5, 99999), limit="16384 texels")
    assert (error.tensor, error.shape, error.limit) == ("mask", (1, 5, 99999), "16384 texels")
    assert str(error) == "tensor 'mask': too wide (limit: 16384 texels)"
    assert str(errors.ResourceError("no memory")) == "no memory"


def test_build_error_carries_source_log_and_lines() -> None:
    error = errors.BuildError("conv.cl", "3:1: error: no", ">    3 | x")
    assert (error.source, error.log, error.excerpt) == ("conv.cl", "3:1: error: no", ">    3 | x")
    for part in ("conv.cl", "3:1: error: no", ">    3 | x"):
        assert part in str(error)
    alone = errors.BuildError("conv.cl", " ", launch="'y' (nodes Conv_3)", status=-6)
    assert str(alone) == (
        "conv.cl, launch 'y' (nodes Conv_3): the driver cannot build this kernel source, status -6; its log is empty"
    )


def test_names_cannot_break_the_line() -> None:
    """A line break, a terminal's escape sequence, a character that turns the direction, half of a surrogate pair."""
    name = "a\nb\r\x1b[31m\u2028\u202e\ud800"
    shown = r"a\nb\r\x1b[31m\u2028\u202e\ud800"
    for error in (
        errors.Error(name), errors.ModelError(name), errors.ModelError("no", name), errors.ModelError("no", node=name),
        errors.ContentError(name, inputs=(name,)), errors.InputError(name), errors.ConfigError(name),
        errors.ResourceError(name), errors.ResourceError("no", tensor=name), errors.BuildError(name, "log"),
    ):
        assert shown in str(error).splitlines()[0]
    assert str(errors.ModelError("größer: 大 é")) == "größer: 大 é"
    assert str(errors.DeviceError("devices:\n  a")) == "devices:\n  a"


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_another_process(error: errors.Error) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert vars(twin) == vars(error)
        assert str(twin) == str(error)
