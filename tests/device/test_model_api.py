"""load() and Model: what they take, what they return, what they refuse."""

from __future__ import annotations

from dataclasses import replace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import pyopencl
import pytest

import imgconv
from imgconv.answers import with_answers
from imgconv.cl.quirks import QUIRKS, quirks_of
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.errors import ConfigError, InputError, ResourceError
from imgconv.graph.nodes import Value
from imgconv.tensor import Tensor, build_graph, concatenate

RANDOM = numpy.random.default_rng(11)
PICTURE = RANDOM.uniform(-1, 1, (1, 3, 6, 7)).astype(numpy.float32)
WEIGHTS = RANDOM.uniform(-1, 1, (4, 3, 3, 3)).astype(numpy.float32)
BIAS = RANDOM.uniform(-1, 1, 4).astype(numpy.float32)


def convolved(picture: Any) -> Any:
    """The small network of these tests in float64: a padded 3x3 convolution, bias, relu."""
    wide = numpy.pad(picture.astype(numpy.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = picture.shape[2:]
    total = numpy.zeros((1, 4, rows, columns))
    for ky in range(3):
        for kx in range(3):
            seen = wide[:, :, ky : ky + rows, kx : kx + columns]
            total += numpy.einsum("nchw,oc->nohw", seen, WEIGHTS[:, :, ky, kx])
    return numpy.maximum(total + BIAS.reshape(-1, 1, 1), 0)


def small_network(x: Tensor) -> Tensor:
    return x.conv2d(Tensor.constant(WEIGHTS), Tensor.constant(BIAS), padding=1).relu()


def small_model(device: DeviceInfo, **settings: Any) -> imgconv.Model:
    x = Tensor.input("picture", PICTURE.shape)
    return imgconv.load(build_graph({"features": small_network(x)}), device, **settings)


def compute(
    device: DeviceInfo, outputs: Mapping[str, Tensor], inputs: Mapping[str, Any], **settings: Any
) -> dict[str, Any]:
    return imgconv.load(build_graph(outputs), device, **settings).run(inputs)


def close(found: Any, expected: Any) -> None:
    numpy.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_one_input_one_output(device: DeviceInfo) -> None:
    model = small_model(device)
    assert model.inputs == {"picture": Value("picture", (1, 3, 6, 7), "float32")}
    assert model.outputs == {"features": Value("features", (1, 4, 6, 7), "float32")}
    assert model.device == device
    close(model(PICTURE), convolved(PICTURE))
    found = model.run({"picture": PICTURE})
    assert list(found) == ["features"]
    assert found["features"].dtype == numpy.float32
    assert (found["features"] == model(PICTURE)).all()


def test_results_are_new_arrays(device: DeviceInfo) -> None:
    model = small_model(device)
    first = model(PICTURE)
    kept = first.copy()
    model(PICTURE * 2)
    assert (first == kept).all()
    first[:] = 0
    close(model(PICTURE), kept)


def test_arrays_of_other_layouts_and_types(device: DeviceInfo) -> None:
    """Fortran order, strides, double, half, small integers and lists are taken as what they hold."""
    model = small_model(device)
    close(model(numpy.asfortranarray(PICTURE)), convolved(PICTURE))
    close(model(PICTURE[:, ::-1]), convolved(PICTURE[:, ::-1]))
    close(model(PICTURE.astype(numpy.float64)), convolved(PICTURE))
    close(model(PICTURE.astype(numpy.float16)), convolved(PICTURE.astype(numpy.float16)))
    pixels = (PICTURE * 100 + 128).astype(numpy.uint8)
    numpy.testing.assert_allclose(model(pixels), convolved(pixels), 1e-5, 1e-3)
    close(model(PICTURE.tolist()), convolved(PICTURE))


def test_wrong_inputs(device: DeviceInfo) -> None:
    model = small_model(device)
    with pytest.raises(InputError, match="^no input is called 'image'; the model's inputs are picture$"):
        model.run({"image": PICTURE})
    with pytest.raises(InputError, match="^input 'picture' is missing; the model's inputs are picture$"):
        model.run({})
    with pytest.raises(InputError, match="no input is called 'other'"):
        model.run({"picture": PICTURE, "other": PICTURE})
    with pytest.raises(InputError, match=r"'picture' has shape \[3, 6, 7\], the model expects \[1, 3, 6, 7\]$"):
        model(PICTURE[0])
    with pytest.raises(InputError, match="input 'picture' has dtype int64, the model expects float32"):
        model(numpy.zeros(PICTURE.shape, numpy.int64))
    with pytest.raises(InputError, match="input 'picture' has dtype complex64, the model expects float32"):
        model(PICTURE.astype(numpy.complex64))
    with pytest.raises(InputError, match="the model expects float32"):
        model(numpy.full(PICTURE.shape, "1.0"))
    close(model(PICTURE), convolved(PICTURE))


def test_arguments_of_another_form(device: DeviceInfo) -> None:
    """Such as those of onnxruntime, or of a model that is called with arrays."""
    model, given = small_model(device), {"picture": PICTURE}
    for call in (model.run, model.submit):
        for inputs in ([PICTURE], PICTURE, None):
            with pytest.raises(InputError, match=r"inputs are passed by name, as in run\(\{'x': array\}\)\['y'\]"):
                call(inputs)  # type: ignore[arg-type, operator]
        for names in (None, ["features"]):
            with pytest.raises(InputError, match="run accepts no output names: it returns all outputs"):
                call(names, given)
    with pytest.raises(InputError, match=r"for run: model.run\(\{'x': array\}\)"):
        model(given)
    with pytest.raises(InputError, match="not a list; without them run returns all outputs"):
        model.run(given, ["features"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a list"):
        model.submit(given, outputs=["features"])  # type: ignore[arg-type]
    for depth in (1.5, "2", 0, -1):
        with pytest.raises(InputError, match=f"depth is {depth!r}"):
            model.submit(given, depth)  # type: ignore[arg-type]
    close(model.submit(given, numpy.int64(2)).result()["features"], convolved(PICTURE))  # type: ignore[arg-type]


def test_one_array_for_two_outputs(device: DeviceInfo) -> None:
    x = Tensor.input("x", (2, 3))
    model = imgconv.load(build_graph({"a": x * 2, "b": x * 3}, [x]), device)
    given, whole = {"x": numpy.ones((2, 3), numpy.float32)}, numpy.zeros((3, 3), numpy.float32)
    for outputs in ({"a": whole[:2], "b": whole[:2]}, {"a": whole[:2], "b": whole[1:]}):
        for call in (model.run, lambda inputs, outputs: model.submit(inputs, outputs=outputs)):
            with pytest.raises(InputError, match="outputs 'a' and 'b' are to fill the same memory"):
                call(given, outputs)
    buffer = pyopencl.Buffer(model.queue.context, pyopencl.mem_flags.READ_WRITE, 24)
    with pytest.raises(InputError, match="the same memory"):
        model.run(given, {"a": buffer, "b": buffer})
    both = numpy.zeros((2, 6), numpy.float32)
    model.run(given, {"a": both[:, ::2].copy(), "b": both[:, 1::2].copy()})
    halves = numpy.zeros((4, 3), numpy.float32)
    model.run(given, {"a": halves[:2], "b": halves[2:]})
    assert halves.tolist() == [[2.0] * 3] * 2 + [[3.0] * 3] * 2


@pytest.mark.parametrize(("dtype", "given", "number"), [
    ("float32", numpy.float64, 1e39), ("float32", numpy.float64, -1e300), ("float16", numpy.float32, 1e5),
    ("float16", numpy.float64, 65520.0), ("float64", numpy.float64, 1e39),
])
def test_floats_that_the_model_does_not_hold(device: DeviceInfo, dtype: str, given: Any, number: float) -> None:
    """They would become infinite. The largest that is rounded to the type's largest is taken, and infinity too."""
    x = Tensor.input("x", (1, 4), dtype)
    model = imgconv.load(build_graph({"y": x * 1.0}, [x]), device)
    for call in (model.run, lambda inputs: model.submit(inputs).result()):
        with pytest.raises(InputError, match=r"input 'x' holds .*: it is computed in float(16|32), which ends at"):
            call({"x": numpy.array([[0, 1, number, 2]], given)})
        edge = 65519.0 if dtype == "float16" else float(numpy.finfo("f4").max)
        found = call({"x": numpy.array([[0, edge, numpy.inf, numpy.nan]], given)})["y"]
        largest = 65504.0 if dtype == "float16" else float(numpy.finfo("f4").max)
        numpy.testing.assert_array_equal(found, [[0, largest, numpy.inf, numpy.nan]])


@pytest.mark.parametrize("given_", ["float32", "complex64", "<U3", "int64", "O"])
def test_wrong_types_for_small_integers(device: DeviceInfo, given_: str) -> None:
    x = Tensor.input("x", (3,), "int8")
    model = imgconv.load(build_graph({"y": x + 1}), device)
    numpy.testing.assert_array_equal(model(numpy.array([1, -2, 3], numpy.int8)), [2, -1, 4])
    with pytest.raises(InputError, match=f"input 'x' has dtype {numpy.dtype(given_)}, the model expects int8"):
        model(numpy.array([1, 300, 3]).astype(given_))


def test_several_inputs_and_outputs(device: DeviceInfo) -> None:
    a, b = Tensor.input("a", (2, 5)), Tensor.input("b", (5,))
    graph = build_graph({"sum": a + b, "product": (a * b).sum([1]), "b again": b.exp()}, [b, a])
    model = imgconv.load(graph, device)
    assert list(model.inputs) == ["b", "a"]
    assert list(model.outputs) == ["sum", "product", "b again"]
    x, y = RANDOM.uniform(-1, 1, (2, 5)).astype(numpy.float32), RANDOM.uniform(-1, 1, 5).astype(numpy.float32)
    found = model.run({"a": x, "b": y})
    close(found["sum"], x + y)
    close(found["product"], x @ y.astype(float))
    close(found["b again"], numpy.exp(y))
    with pytest.raises(InputError, match=r"the model has 2 inputs \(b, a\): use run\({name: array}\)"):
        model(x)


def test_a_model_of_several_outputs_is_run_by_name(device: DeviceInfo) -> None:
    x = Tensor.input("x", (3,))
    model = imgconv.load(build_graph({"y": x + 1, "z": x * 2}), device)
    with pytest.raises(InputError, match=r"the model has 2 outputs \(y, z\): use run\(\{'x': array\}\), which returns"):
        model(numpy.ones(3, numpy.float32))


def test_an_input_that_nothing_reads(device: DeviceInfo) -> None:
    x, unused = Tensor.input("x", (3,)), Tensor.input("unused", (1, 5, 2, 2))
    model = imgconv.load(build_graph({"y": x + 1}, [x, unused]), device)
    assert list(model.inputs) == ["x", "unused"]
    found = model.run({"x": numpy.zeros(3), "unused": numpy.zeros((1, 5, 2, 2))})
    numpy.testing.assert_array_equal(found["y"], [1, 1, 1])


@pytest.mark.parametrize("shape", [(5,), (3, 5), (1, 5, 3, 4), ()], ids=str)
def test_outputs_that_are_inputs_or_constants(device: DeviceInfo, shape: tuple[int, ...]) -> None:
    x, array = Tensor.input("x", shape), RANDOM.uniform(-1, 1, shape).astype(numpy.float32)
    known = RANDOM.uniform(-1, 1, (1, 5, 3, 4)).astype(numpy.float32)
    outputs = {
        "x": x, "same": x, "again": x, "known": Tensor.constant(known), "integers": Tensor.constant(numpy.arange(7)),
        "truth": Tensor.constant(numpy.array([True, False, True])), "computed": Tensor.constant(known).exp(),
        "y": x * 2,
    }
    for settings in ({}, {"max_image": 8}):
        found = compute(device, outputs, {"x": array}, **settings)
        assert list(found) == list(outputs)
        for name in ("x", "same", "again"):
            numpy.testing.assert_array_equal(found[name], array)
        numpy.testing.assert_array_equal(found["known"], known)
        numpy.testing.assert_array_equal(found["y"], array * 2)
        close(found["computed"], numpy.exp(known))
        assert found["integers"].tolist() == list(range(7))
        assert found["integers"].dtype == numpy.int64
        assert found["truth"].tolist() == [True, False, True]
        assert found["truth"].dtype == bool


@pytest.mark.parametrize("one_by_one", [False, True])
def test_only_a_constant(device: DeviceInfo, one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No launches and no programs, also if each kernel would be a program."""
    monkeypatch.setitem(QUIRKS, device.platform, replace(quirks_of(device.platform), one_kernel_a_program=one_by_one))
    model = imgconv.load(build_graph({"y": Tensor.constant(numpy.array([[1, 2, 3]], numpy.float32))}), device)
    assert model.run({})["y"].tolist() == [[1, 2, 3]]


def test_an_output_that_is_used(device: DeviceInfo) -> None:
    """An output in the middle, two names for one tensor, and an output that is written into a concatenation."""
    x = Tensor.input("picture", PICTURE.shape)
    middle = small_network(x)
    end = middle.max_pool(2, 2)
    joined = concatenate([middle, middle * 2], 1)
    outputs = {"middle": middle, "twice": middle, "end": end, "joined": joined, "sum": joined.sum([1])}
    found = compute(device, outputs, {"picture": PICTURE})
    want = convolved(PICTURE)
    close(found["middle"], want)
    close(found["twice"], want)
    close(found["end"], want[:, :, :6, :6].reshape(1, 4, 3, 2, 3, 2).max((3, 5)))
    close(found["joined"], numpy.concatenate([want, 2 * want], 1))
    close(found["sum"], 3 * want.sum(1))


def test_runs_are_bit_identical(device: DeviceInfo) -> None:
    model = small_model(device, float16=1)
    first = model(PICTURE)
    model(PICTURE[:, :, ::-1])
    assert (model(PICTURE) == first).all()
    assert (small_model(device, float16=1)(PICTURE) == first).all()


def test_two_models_with_different_settings(device: DeviceInfo) -> None:
    exact, rounded = small_model(device, float16=0), small_model(device, float16=1)
    assert (exact.config.float16, rounded.config.float16) == (0, 1)
    close(exact(PICTURE), convolved(PICTURE))
    numpy.testing.assert_allclose(rounded(PICTURE), convolved(PICTURE), 1e-2, 1e-2)
    assert (exact(PICTURE) != rounded(PICTURE)).any()
    close(exact(PICTURE), convolved(PICTURE))


def test_settings_from_the_environment(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOAT16", "1")
    monkeypatch.setenv("NATIVE_EXPLOG", "1")
    monkeypatch.setenv("IMGCONV_MAX_IMAGE", "8")
    model = small_model(device)
    assert (model.config.float16, model.config.native_explog, model.config.max_image) == (1, True, 8)
    assert all(max(texture.tiling.image_size) <= 8 for texture in model.plan.textures)
    assert any(texture.dtype == "float16" for texture in model.plan.textures)
    numpy.testing.assert_allclose(model(PICTURE), convolved(PICTURE), 1e-2, 1e-2)
    arguments = small_model(device, float16=0, native_explog=False, max_image=1000)
    assert (arguments.config.float16, arguments.config.native_explog, arguments.config.max_image) == (0, False, 1000)
    monkeypatch.setenv("FLOAT16", "half")
    with pytest.raises(ConfigError, match="FLOAT16='half' is not an integer"):
        small_model(device)


def test_native_functions_are_close(device: DeviceInfo) -> None:
    x = Tensor.input("x", (4, 9))
    array = RANDOM.uniform(0.1, 4, (4, 9)).astype(numpy.float32)
    outputs = {"exp": x.exp(), "log": x.log(), "sigmoid": x.sigmoid(), "divide": 2 / x, "softmax": x.softmax(1)}
    exact = compute(device, outputs, {"x": array}, native_explog=False)
    native = imgconv.load(build_graph(outputs), device, native_explog=True)
    assert any("native_exp" in launch.source.text for launch in native.plan.launches)
    for name, found in native.run({"x": array}).items():
        numpy.testing.assert_allclose(found, exact[name], 1e-3, 1e-3, err_msg=name)


@pytest.mark.parametrize("max_image", [8, 13, 100000])
def test_max_image(device: DeviceInfo, max_image: int) -> None:
    model = small_model(device, max_image=max_image)
    assert all(max(texture.tiling.image_size) <= max_image for texture in model.plan.textures)
    close(model(PICTURE), convolved(PICTURE))


def test_max_image_must_be_eight(device: DeviceInfo) -> None:
    with pytest.raises(ConfigError, match="IMGCONV_MAX_IMAGE=7: an image needs a limit of at least 8 texels"):
        small_model(device, max_image=7)


def test_nothing_fits(context: Context) -> None:
    """A tensor that no tiling under the limit holds is refused at load, by name, shape and limit."""
    side = int(numpy.ceil(8 * (context.info.max_image_layers + 1) ** 0.5)) + 8
    x = Tensor.input("enormous", (1, 4, side, side))
    graph = build_graph({"y": x.conv2d(Tensor.constant(numpy.ones((1, 4, 3, 3), numpy.float32)))})
    with pytest.raises(ResourceError, match=rf"enormous.*shape \[1, 4, {side}, {side}\].*8x8 texels") as error:
        imgconv.load(graph, context.info, max_image=8)
    assert "lower" in str(error.value) or "smaller input" in str(error.value)


def test_plan_is_readable(device: DeviceInfo) -> None:
    model = small_model(device)
    text = str(model.plan)
    assert text.startswith("plan: 3 launches, 2 of them to pack inputs and unpack outputs, ")
    assert "compute  features: convolution pads 1x1 + add maximum  [block " in text
    assert "weights " in text
    assert "activations " in text
    assert len(model.plan.launches) == 3
    assert model.plan.multiply_adds == 4 * 6 * 7 * 3 * 9
    assert model.plan.bytes == model.plan.weight_bytes + model.plan.activation_bytes + model.plan.buffer_bytes
    assert model.plan.most_alive == 16 * 6 * 7 * 2 <= model.plan.activation_bytes
    assert "features: float32[1, 4, 6, 7] = convolution pads 1x1(" in str(model.graph)


def test_progress(device: DeviceInfo) -> None:
    seen: list[tuple[int, int, str]] = []
    small_model(device, progress=lambda *step: seen.append(step))
    assert seen[0] == (0, 3, "compiling kernels")
    assert seen[-1] == (3, 3, "ready")


def test_a_notebook_shows_a_table(device: DeviceInfo) -> None:
    shown = small_model(device)._repr_html_()
    assert "<td>input</td><td>picture</td><td>float32</td><td>[1, 3, 6, 7]</td>" in shown
    assert "<td>output</td><td>features</td>" in shown and "launches</caption>" in shown


def test_an_onnx_file(device: DeviceInfo, tmp_path: Path) -> None:
    """From a file, with a symbolic size fixed by shapes=."""
    node = onnx.helper.make_node("Conv", ["picture", "weights", "bias"], ["c"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph(
        [node, onnx.helper.make_node("Relu", ["c"], ["features"])], "small",
        [onnx.helper.make_tensor_value_info("picture", 1, [1, 3, "rows", 7])],
        [onnx.helper.make_tensor_value_info("features", 1, None)],
        [onnx.numpy_helper.from_array(WEIGHTS, "weights"), onnx.numpy_helper.from_array(BIAS, "bias")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    for source, shapes in ((path, {"rows": 6}), (str(path), {"picture": (1, 3, 6, 7)})):
        model = imgconv.load(source, device, shapes=shapes)
        close(model(PICTURE), convolved(PICTURE))
    close(model(PICTURE[:, :, :5]), convolved(PICTURE[:, :, :5]))
    with pytest.raises(InputError, match=r"shape \[1, 3, 5, 6\], the model expects \[1, 3, 5, 7\]$"):
        model(PICTURE[:, :, :5, :6])


def test_the_bytes_of_an_onnx_file(device: DeviceInfo, tmp_path: Path) -> None:
    x = Tensor.input("picture", PICTURE.shape)
    imgconv.export_onnx(build_graph({"features": small_network(x)}), tmp_path / "m.onnx")
    model = imgconv.load((tmp_path / "m.onnx").read_bytes(), device)
    close(model(PICTURE), convolved(PICTURE))
    assert "imgconv.Model model on" in repr(model) and list(model.inputs) == ["picture"]
    model.save(tmp_path / "m.imgconv")
    for content, message in (
        ((tmp_path / "m.imgconv").read_bytes(), "a compiled file: pass its path"),
        (b"\xff\xff", "not an ONNX file"), (3, "a model is a path, .* not a int"), (None, ".* not a NoneType"),
    ):
        with pytest.raises(imgconv.ModelError, match=message):
            imgconv.load(content, device)  # type: ignore[arg-type]


def test_arguments_of_another_type(device: DeviceInfo) -> None:
    """Each error names the argument and what it may be."""
    graph: Any = build_graph({"y": Tensor.input("x", (3,)) + 1})
    model: Any = imgconv.load(graph, device)
    with pytest.raises(InputError, match=r"a Graph can be exported, such as model\.graph, not a Model"):
        imgconv.export_onnx(model)
    with pytest.raises(InputError, match="added to a loaded model, not to a Graph: load it first"):
        with_answers(graph)
    with pytest.raises(imgconv.ConfigError, match="workspace= is a model that is already loaded, not a Graph"):
        imgconv.load(graph, device, workspace=graph)
    shapes: Any = [3]
    with pytest.raises(imgconv.ConfigError, match=r"shapes= is a dict such as .*, not a list"):
        imgconv.load(graph, device, shapes=shapes)


def test_device_by_name_and_number(device: DeviceInfo) -> None:
    x = Tensor.input("x", (3,))
    graph = build_graph({"y": x + 1})
    assert imgconv.load(graph, device.index).device == device
    assert imgconv.load(graph, str(device.index)).device == device
    assert imgconv.load(graph, numpy.int64(device.index)).device == device
