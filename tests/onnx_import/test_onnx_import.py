"""Importing ONNX files: shapes, constants, names, and the real models of IMGCONV_MODELS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from support import ENGINES, assert_close, make_input, make_model, model_with, run_model, run_oracle

from imgconv.errors import InputError, ModelError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.onnx_import import declared_inputs, import_onnx

node = onnx.helper.make_node
X = numpy.arange(12, dtype=numpy.float32).reshape(1, 3, 4)


def shapes_of(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {value.name: value.shape for value in graph.inputs}


# Shapes of inputs


def test_a_fixed_shape_needs_nothing() -> None:
    graph = import_onnx(model_with([1, 3, 4]))
    assert shapes_of(graph) == {"x": (1, 3, 4)}
    assert graph.values["y"].shape == (1, 3, 4)


@pytest.mark.parametrize("batch", ["N", None, 0, -1])
def test_a_batch_that_is_not_given_is_one(batch: Any) -> None:
    assert shapes_of(import_onnx(model_with([batch, 3]))) == {"x": (1, 3)}


@pytest.mark.parametrize("shapes", [{"x": (2, 3, 5)}, {"N": 2, "W": 5}, {"x": [2, 3, 5], "N": 2},
    {"N": numpy.int64(2), "W": 5}])
def test_shapes_fixes_symbolic_dimensions(shapes: Any) -> None:
    assert shapes_of(import_onnx(model_with(["N", 3, "W"]), shapes)) == {"x": (2, 3, 5)}


def test_a_dimension_fixed_for_one_input_is_fixed_for_all() -> None:
    model = make_model([node("Add", ["a", "b"], ["y"])], {}, ["y"], 13)
    model.graph.input.extend([make_input("a", "float32", ["N", "W"]), make_input("b", "float32", ["N", "W"])])
    assert shapes_of(import_onnx(model, {"b": (2, 5)})) == {"a": (2, 5), "b": (2, 5)}
    with pytest.raises(InputError, match=r"input 'b' to \[2, 6\], .* and 'W' is 5 in input 'a'"):
        import_onnx(model, {"a": (2, 5), "b": (2, 6)})
    with pytest.raises(InputError, match="'W' is 4 in shapes"):
        import_onnx(model, {"W": 4, "b": (2, 6)})


@pytest.mark.parametrize("unknown", ["", "?", "-1", "None"])
def test_what_exporters_write_for_an_unknown_size_is_no_symbol(unknown: str) -> None:
    model = make_model([node("MatMul", ["a", "b"], ["y"])], {}, ["y"], 13)
    model.graph.input.extend([make_input("a", "float32", [unknown] * 2), make_input("b", "float32", [unknown] * 2)])
    shapes = {"a": (2, 5), "b": (5, 3)}
    assert shapes_of(import_onnx(model, shapes)) == shapes
    assert declared_inputs(model)["a"] == ("float32", ["", ""])
    with pytest.raises(InputError, match="names '.*', but the model's inputs are 'a', 'b'$"):
        import_onnx(model, {unknown: 5})
    with pytest.raises(InputError, match=r"input 'a' is \[\?, \?\]: the size of axis 1 is unknown"):
        import_onnx(model)


@pytest.mark.parametrize("name", ["unk__12", "p2o.DynamicDimension.0", "W"])
def test_dimensions_of_one_name_may_have_different_sizes(name: str) -> None:
    """Exporters give unrelated dimensions a common name; onnxruntime accepts them too."""
    model = model_with([1, name, name])
    assert shapes_of(import_onnx(model, {name: 5})) == {"x": (1, 5, 5)}
    assert shapes_of(import_onnx(model, {"x": (1, 5, 6)})) == {"x": (1, 5, 6)}
    product = make_model([node("MatMul", ["a", "b"], ["y"])], {}, ["y"], 13)
    product.graph.input.extend(make_input(each, "float32", [name, name]) for each in "ab")
    feeds = {"a": numpy.ones((2, 5), "f4"), "b": numpy.ones((5, 3), "f4")}
    assert_close(run_model(product, feeds), run_oracle(product, feeds), 1e-6)


def test_nodes_may_be_out_of_order() -> None:
    """onnxruntime sorts them."""
    nodes = [node("Add", ["b", "c"], ["y"]), node("Neg", ["a"], ["c"]), node("Relu", ["x"], ["a"]),
        node("Abs", ["a"], ["b"])]
    model = model_with([1, 3, 4], nodes)
    assert_close(run_model(model, {"x": X}), run_oracle(model, {"x": X}), 1e-6)
    body = onnx.helper.make_graph([node("Neg", ["c"], ["d"]), node("Abs", ["x"], ["c"])], "body", [],
        [onnx.ValueInfoProto(name="d")])
    inside = make_model([node("If", ["true"], ["y"], then_branch=body, else_branch=body), node("Identity", ["t"],
        ["true"])], {"x": X}, ["y"], 13, {"t": numpy.array(True)})
    assert_close(run_model(inside, {"x": X}), {"y": -abs(X)}, 1e-6)


def test_a_domain_without_an_import_has_its_newest_version() -> None:
    """onnxruntime adds what is missing, as long as there is one import."""
    quick = node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    assert_close(run_model(model_with([1, 3, 4], [quick]), {"x": X}), {"y": X / (1 + numpy.exp(-1.702 * X))}, 1e-6)
    model = model_with([1, 3, 4], [node("Relu", ["x"], ["h"]), node("QuickGelu", ["h"], ["y"], domain="com.microsoft")])
    model.opset_import[0].CopyFrom(onnx.helper.make_opsetid("com.microsoft", 1))
    assert_close(run_model(model, {"x": X}), run_oracle(model, {"x": X}), 1e-6)


@pytest.mark.parametrize(("op_type", "opset", "dtype"), [("Equal", 7, "float32"), ("Relu", 13, "int32"),
    ("Max", 8, "int64"), ("MatMul", 7, "float16"), ("Gather", 7, "float32"), ("Less", 7, "int32")])
def test_types_that_only_newer_opsets_list(op_type: str, opset: int, dtype: str) -> None:
    x = X.astype(dtype)
    inputs = ["x"] if op_type == "Relu" else ["x", "w"]
    w = {"Gather": numpy.array([0]), "MatMul": numpy.ones((4, 2), dtype)}.get(op_type, x[:, :1])
    old, new = (make_model([node(op_type, inputs, ["y"])], {"x": x}, ["y"], n, {"w": w}) for n in (opset, 19))
    assert_close(run_model(old, {"x": x}), run_oracle(new, {"x": x}), 1e-3)


def test_outputs_that_are_left_out_in_the_middle() -> None:
    nodes = [node("LayerNormalization", ["x", "w"], ["y", "", "z"])]
    model = make_model(nodes, {"x": X}, ["y", "z"], 17, {"w": X[0, 0]})
    assert_close(run_model(model, {"x": X}), run_oracle(model, {"x": X}), 2e-6)


def test_an_input_without_a_shape_needs_one() -> None:
    model = model_with([1])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(InputError, match=r"input 'x' has no shape.*shapes="):
        import_onnx(model)
    assert shapes_of(import_onnx(model, {"x": (2, 7)})) == {"x": (2, 7)}


@pytest.mark.parametrize(("dimensions", "shapes", "message"), [
    (["N", 3, "W"], {},
     r"input 'x' is \[N, 3, W\]: the size of axis 2 is unknown.*\{'x': \(1, 3, 224\)\}.*'W': 224"),
    (["N", None], {}, r"axis 1 is unknown"),
    ([1, 3], {"x": (1, 3, 4)}, r"sets input 'x' to \[1, 3, 4\], but the model has \[1, 3\]"),
    ([1, 3], {"x": (1, 4)}, r"sets input 'x' to \[1, 4\], but the model has \[1, 3\]"),
    (["N", 3], {"y": (1, 3)}, r"names 'y', but the model's inputs are 'x' and its dimensions 'N'"),
    (["N", 3], {"N": 0}, r"sets 'N' to the size 0"),
    (["N", 3], {"N": True}, r"sets 'N' to the size True"),
    (["N", 3], {"x": (1.5, 3)}, r"sets 'x' to the size 1.5"),
    (["N", 3], {"N": (1, 3)}, r"'N' is the name of a dimension"),
    (["N", 3], {"x": 4}, r"'x' is an input"),
])
def test_shapes_that_do_not_fit(dimensions: Any, shapes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_onnx(model_with(dimensions), shapes)


# Constants


def test_shape_arithmetic_is_folded_away() -> None:
    """Reshape(x, Concat(Unsqueeze(Gather(Shape(x), 0)), [-1])), as PyTorch exports a flatten."""
    nodes = [
        node("Shape", ["x"], ["s"]), node("Constant", [], ["zero"], value=onnx.numpy_helper.from_array(numpy.array(0))),
        node("Gather", ["s", "zero"], ["n"]), node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        node("Constant", [], ["rest"], value=onnx.numpy_helper.from_array(numpy.array([-1]))),
        node("Concat", ["n1", "rest"], ["shape"], axis=0), node("Reshape", ["x", "shape"], ["y"]),
    ]
    graph = import_onnx(model_with(["N", 3, 4], nodes, opset=11), {"N": 2})
    assert [str(n.operation) for n in graph.nodes] == ["load"]
    assert not graph.constants
    assert graph.values["y"].shape == (2, 12)


def test_integers_stay_exact() -> None:
    big = numpy.array([2**53 + 1, -(2**62) - 1, 7])
    nodes = [node("Add", ["big", "one"], ["a"]), node("Mul", ["a", "one"], ["b"]), node("Div", ["b", "three"], ["y"])]
    model = make_model(nodes, {}, ["y"], 13, {"big": big, "one": numpy.array(1), "three": numpy.array([1, 1, -3])})
    assert run_model(model, {})["y"].tolist() == [2**53 + 2, -(2**62), -2]


def test_initializers_that_are_also_inputs_are_constants() -> None:
    model = make_model([node("Mul", ["x", "w"], ["y"])], {"x": X, "w": X}, ["y"], 7, {"w": X})
    graph = import_onnx(model)
    assert list(shapes_of(graph)) == ["x"]
    assert_close(evaluate_graph(graph, {"x": X}), {"y": X * X}, 1e-6)


def test_half_models_stay_half() -> None:
    model = make_model([node("Mul", ["x", "w"], ["y"])], {"x": X.astype("f2")}, ["y"], 13, {"w": X.astype("f2")})
    graph = import_onnx(model)
    assert {graph.values[name].dtype for name in ("x", "w", "y")} == {"float16"}


def test_batch_normalisation_of_a_half_model_survives_tiny_and_huge_variances() -> None:
    """A variance of 6e-45 is zero in half and 2.2e7 infinite."""
    x = numpy.ones((1, 2, 1, 1), numpy.float16)
    parts = {"s": [1e-3, 4000], "b": [0, 0], "m": [0, 0], "v": [6e-45, 2.2e7]}
    constants = {name: numpy.float32(values) for name, values in parts.items()}
    model = make_model([node("BatchNormalization", ["x", *"sbmv"], ["y"])], {"x": x}, ["y"], 15, constants)
    assert_close(run_model(model, {"x": x}), {"y": numpy.float16([[[[0.3162]], [[0.8528]]]])}, 1e-3)


def external(tmp_path: Path, location: str = "weights.bin") -> Path:
    """A file whose weights are in another file."""
    model = make_model([node("Mul", ["x", "w"], ["y"])], {"x": X}, ["y"], 13, {"w": X})
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=0)
    return path


def test_external_data_is_read_from_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external(tmp_path)
    monkeypatch.chdir("/")
    assert_close(run_model(path, {"x": X}), {"y": X * X}, 1e-6)


def test_a_missing_external_file_is_named(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"tensor 'w' is in the external file .*weights\.bin"):
        import_onnx(path)


def test_a_short_external_file_is_named(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"123")
    with pytest.raises(ModelError, match=r"weights\.bin|'w'"):
        import_onnx(path)


def test_external_data_without_a_path_is_refused(tmp_path: Path) -> None:
    model = onnx.load(external(tmp_path), load_external_data=False)
    with pytest.raises(ModelError, match="pass the model's path"):
        import_onnx(model)


# Structure


def test_outputs_may_be_inputs_constants_or_each_other() -> None:
    nodes = [node("Identity", ["x"], ["same"]), node("Relu", ["x"], ["r"]), node("Identity", ["r"], ["again"])]
    model = make_model(nodes, {"x": X}, ["x", "same", "w", "r", "again"], 13, {"w": X + 1})
    found = run_model(model, {"x": X})
    assert_close(found, {"x": X, "same": X, "w": X + 1, "r": X, "again": X}, 1e-6)


def test_an_input_without_elements_may_be_an_output() -> None:
    empty = numpy.zeros((1, 0, 4), numpy.float32)
    model = make_model([node("Concat", ["x", "w"], ["y"], axis=1)], {"x": empty}, ["x", "y"], 13, {"w": X})
    assert_close(run_model(model, {"x": empty}), {"x": empty, "y": X}, 0)


def test_inputs_keep_their_order_used_or_not() -> None:
    model = make_model([node("Relu", ["c"], ["y"])], {"a": X, "b": X, "c": X}, ["y"], 13)
    assert list(shapes_of(import_onnx(model))) == ["a", "b", "c"]


def test_dead_nodes_are_ignored() -> None:
    nodes = [node("NonMaxSuppression", ["x", "x"], ["dead"]), node("Relu", ["x"], ["y"]),
        node("Softmax", ["nothing"], ["d"])]
    assert_close(run_model(make_model(nodes, {"x": X}, ["y"], 13), {"x": X}), {"y": X}, 1e-6)


def test_values_take_the_names_of_onnx_and_nodes_their_origin() -> None:
    nodes = [node("Relu", ["x"], ["hidden"], name="first"), node("Softmax", ["hidden"], ["y"])]
    graph = import_onnx(make_model(nodes, {"x": X}, ["y"], 13))
    assert {"x", "hidden", "y"} <= set(graph.values)
    assert graph.producers["hidden"].origin == ("first",)
    assert graph.producers["y"].origin == ("Softmax_1",)


def test_names_that_the_builder_would_choose_itself() -> None:
    nodes = [node("Softmax", ["x"], ["t2"]), node("Softmax", ["t2"], ["t1"]), node("Softmax", ["t1"], ["t5"])]
    model = make_model(nodes, {"x": X}, ["t5", "t1"], 13)
    graph = import_onnx(model)
    assert graph.outputs == ("t5", "t1")
    assert_close(evaluate_graph(graph, {"x": X}), run_oracle(model, {"x": X}), 1e-6)


def test_functions_are_put_in_place() -> None:
    function = onnx.helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [onnx.helper.make_opsetid("", 13)]
    )
    model = make_model([node("Twice", ["x"], ["h"], domain="own"), node("Twice", ["h"], ["y"], domain="own")],
        {"x": X}, ["y"], 13)
    model.functions.append(function)
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    assert_close(run_model(model, {"x": X}), {"y": 4 * X}, 1e-6)


def test_the_long_name_of_onnx_own_domain() -> None:
    model = make_model([node("Relu", ["x"], ["y"], domain="ai.onnx")], {"x": X}, ["y"], 13)
    model.opset_import[0].domain = "ai.onnx"
    assert_close(run_model(model, {"x": X}), {"y": X}, 1e-6)


def test_a_long_chain_needs_no_deep_stack() -> None:
    nodes = [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(3000)]
    assert len(import_onnx(make_model(nodes, {"v0": X}, ["v3000"], 13)).nodes) == 3000


def test_the_model_is_left_as_it_was() -> None:
    model = make_model([node("Relu", ["x"], ["y"], domain="ai.onnx")], {"x": X}, ["y"], 13)
    before = model.SerializeToString()
    import_onnx(model)
    assert model.SerializeToString() == before


# Real models

MODELS = Path(os.environ.get("IMGCONV_MODELS", ""))
# candy at 720x720 takes numpy a minute: it is only imported.
CASES = {
    "espcn/espcn.onnx": ("espcn_zoo", "espcn_australia"),
    "minifasnet/minifasnet_v2.onnx": ("fas_MiniFASNetV2_F1", "fas_MiniFASNetV2_F2", "fas_MiniFASNetV2_T1"),
    "squeezenet/squeezenet.onnx": ("squeezenet_fp32_fish",),
    "squeezenet/squeezenet_fp16.onnx": ("squeezenet_fp16_fish", "squeezenet_fp16_kitten", "squeezenet_fp16_wolves"),
    "ultraface/ultraface_rfb320.onnx": ("ultraface_rfb320_1", "ultraface_rfb320_11"),
    "yolox_nano/yolox_nano.onnx": ("yolox_nano_139", "yolox_nano_632", "yolox_nano_785"),
}
needs_models = pytest.mark.skipif(
    not os.environ.get("IMGCONV_MODELS"), reason="IMGCONV_MODELS is not set: give the folder with the real models"
)


@needs_models
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in CASES.items() for name in names])
def test_real_model(path: str, name: str, engine: str) -> None:
    file = MODELS / path
    case = numpy.load(file.parent / f"case_{name}.npz")
    inputs = {key[3:]: case[key] for key in case.files if key.startswith("in:")}
    expected = {key[4:]: case[key] for key in case.files if key.startswith("out:")}
    assert_close(run_model(file, inputs, engine), expected, 1e-3)


@needs_models
def test_candy_imports() -> None:
    graph = import_onnx(MODELS / "candy" / "candy.onnx")
    assert graph.values["outputImage"].shape == (1, 3, 720, 720)
