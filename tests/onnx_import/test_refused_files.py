"""ONNX files that are refused, and what the errors name; types that are computed in others."""

from __future__ import annotations

from pathlib import Path

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from support import assert_close, make_input, make_model, model_with, run_model

from imgconv.errors import ModelError, UnsupportedError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx

node = onnx.helper.make_node
X = numpy.arange(12, dtype=numpy.float32).reshape(1, 3, 4)


def broken(change: str) -> onnx.ModelProto:
    """A model with one fault."""
    model = model_with([1, 3, 4])
    first = model.graph.node[0]
    if change == "cycle":
        first.input[0] = "y"
    elif change == "twice":
        model.graph.node.append(node("Relu", ["x"], ["y"]))
    elif change == "shadow":
        model.graph.node.append(node("Relu", ["x"], ["x"]))
        model.graph.output.append(onnx.ValueInfoProto(name="x"))
    elif change == "output":
        model.graph.output[0].name = "nothing"
    elif change == "empty":
        del model.graph.output[:]
    elif change == "attribute":
        first.attribute.append(onnx.helper.make_attribute("alpha", 0.5))
    elif change == "opset":
        del model.opset_import[:]
    elif change == "weights":
        first.op_type = "Add"
        first.input.append("w")
        model.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[5], raw_data=b"1234"))
    return model


@pytest.mark.parametrize(("change", "message", "name"), [
    ("cycle", "reads 'y', which no node before it computes", "relu"),
    ("twice", "the name 'y' is given to two tensors", "Relu_1"),
    ("shadow", "the name 'x' is given to two tensors", "Relu_1"),
    ("output", "output 'nothing' is not computed by any node", ""), ("empty", "no graph with outputs", ""),
    ("attribute", "not valid ONNX: Unrecognized attribute: alpha", "relu"), ("opset", "which ONNX opset", ""),
    ("weights", "tensor 'w' does not fit its shape", ""),
])
def test_broken_models(change: str, message: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(broken(change).SerializeToString())
    with pytest.raises(ModelError, match=message) as caught:
        import_onnx(path)
    assert caught.value.file == str(path)
    assert caught.value.node == name
    assert not isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize("content", [b"", b"hello, this is no model", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(1000)])
def test_files_that_are_no_models(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not an ONNX") as caught:
        import_onnx(str(path))
    assert str(path) in str(caught.value)


def test_a_pointer_in_place_of_a_model(tmp_path: Path) -> None:
    """Git leaves one where Git LFS is not installed."""
    (tmp_path / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
    with pytest.raises(ModelError, match="Git LFS pointer.*git lfs pull"):
        import_onnx(tmp_path / "model.onnx")


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    content = make_model([node("Mul", ["x", "w"], ["y"])], {"x": X}, ["y"], 13, {"w": X}).SerializeToString()
    path = tmp_path / "short.onnx"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError):
            import_onnx(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read the file: No such file"):
        import_onnx(tmp_path / "nothing.onnx")
    with pytest.raises(ModelError, match="cannot read the file: Is a directory"):
        import_onnx(tmp_path)
    with pytest.raises(ModelError, match="cannot read the file"):
        import_onnx("")


def test_an_opset_that_is_not_known_yet() -> None:
    with pytest.raises(UnsupportedError, match="opset 99; the installed onnx package supports .*update it"):
        import_onnx(model_with([1], opset=99))


def test_old_opsets_are_converted() -> None:
    """Before opset 7, Add said that it broadcasts, and Dropout that nothing is trained."""
    add = node("Add", ["x", "b"], ["s"], broadcast=1)
    model = model_with([2, 3, 4], [add, node("Dropout", ["s"], ["y"], is_test=1)], opset=6)
    model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.float32([1, 2, 3, 4]), "b"))
    model.graph.input.append(make_input("b", "f4", [4]))
    x = numpy.ones((2, 3, 4), numpy.float32)
    found = evaluate_graph(import_onnx(model), {"x": x})["y"]
    numpy.testing.assert_array_equal(found, x + numpy.float32([1, 2, 3, 4]))


def test_what_onnx_converts_to_another_meaning_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="opset 6; imgconv reads 7 and newer, .*PRelu has another meaning"):
        import_onnx(model_with([2, 3, 3], [node("PRelu", ["x", "s"], ["y"])], opset=6))


def test_unsupported_operators_are_listed_at_once() -> None:
    nodes = [
        node("RandomUniformLike", ["x"], ["a"], name="find"), node("RandomUniformLike", ["a"], ["c"]),
        node("Own", ["x"], ["b"], name="fused", domain="my.domain"),
        node("StringConcat", ["b", "c"], ["y"], name="text"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(model_with([3], nodes))
    message = str(caught.value)
    assert "RandomUniformLike (2 nodes: find, RandomUniformLike_1)" in message
    assert "my.domain.Own (1 node: fused)" in message
    assert '@imgconv.ops.operator("Own", domain="my.domain")' in message
    assert "StringConcat (1 node: text)" in message


@pytest.mark.parametrize(("dtype", "name"), [("complex64", "complex64"), ("str", "string")])
def test_inputs_of_other_types(dtype: str, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"input 'x' is of type {name}"):
        import_onnx(model_with([1], dtype=dtype))


def test_inputs_that_are_no_tensors() -> None:
    model = model_with([1])
    model.graph.input[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(model.graph.input[0].type))
    with pytest.raises(UnsupportedError, match="input 'x' is not a tensor but a sequence_type"):
        import_onnx(model)


def test_sparse_weights_are_refused_by_name() -> None:
    model = model_with([3], [node("Add", ["x", "w"], ["y"])])
    values = onnx.helper.make_tensor("w", 1, [1], [1.0])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values,
        onnx.helper.make_tensor("i", 7, [1], [1]), [3]))
    with pytest.raises(UnsupportedError, match="initializer 'w' is sparse"):
        import_onnx(model)


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.INT4])
def test_weights_of_other_types_are_refused_by_name(kind: int) -> None:
    model = model_with([2], [node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.append(onnx.helper.make_tensor("w", kind, [2], [1, 2]))
    with pytest.raises(UnsupportedError, match=f"tensor 'w' is of type {onnx.TensorProto.DataType.Name(kind).lower()}"):
        import_onnx(model)


def test_bfloat16_is_computed_in_float_and_said() -> None:
    """Weights, inputs, casts and outputs; numpy has no bfloat16."""
    kind = onnx.TensorProto.BFLOAT16
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Cast", ["h"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Relu", ["f"], ["r"]), node("Cast", ["r"], ["y"], to=kind)]
    model = make_model(nodes, {}, ["y"], 13)
    model.graph.input.append(onnx.helper.make_tensor_value_info("x", kind, [1, 3, 4]))
    w = numpy.linspace(-1, 1, 8, dtype=numpy.float32).reshape(4, 2)
    model.graph.initializer.append(onnx.helper.make_tensor("w", kind, [4, 2], w.ravel()))
    rounded = onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(numpy.float32)
    assert 0 < abs(rounded - w).max() < 2**-8
    with pytest.warns(RuntimeWarning, match=r"tensors of bfloat16 \('x' ...\) are computed in fp32"):
        found = run_model(model, {"x": X})
    assert_close(found, {"y": numpy.maximum(X @ rounded, 0)}, 1e-6)


def test_float64_is_said_if_it_depends_on_an_input(recwarn: pytest.WarningsRecorder) -> None:
    nodes = [node("Cast", ["w"], ["c"], to=onnx.TensorProto.FLOAT), node("Mul", ["x", "c"], ["y"])]
    found = run_model(make_model(nodes, {"x": X}, ["y"], 13, {"w": X.astype(float) / 3}), {"x": X})
    assert_close(found, {"y": X * X / 3}, 1e-6)
    assert not recwarn.list
    with pytest.warns(RuntimeWarning, match=r"float64 \('x' ...\) are computed in fp32"):
        import_onnx(model_with([1, 3, 4], dtype="float64"))


def test_a_reference_to_an_attribute_outside_of_a_function() -> None:
    model = model_with([3], [node("LeakyRelu", ["x"], ["y"], name="leaky")])
    model.graph.node[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    with pytest.raises(ModelError, match="alpha refers to a function's attribute, outside of one") as caught:
        import_onnx(model)
    assert caught.value.node == "leaky"


def test_negative_dimensions_of_weights() -> None:
    """numpy would take -1 for whatever is left."""
    model = model_with([2], [node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.add(name="w", data_type=1, dims=[-1, 2], raw_data=bytes(16))
    with pytest.raises(ModelError, match=r"tensor 'w' has the shape \[-1, 2\]"):
        import_onnx(model)


@pytest.mark.parametrize("value", [2, -1])
def test_flags_of_functions_are_0_or_1(value: int) -> None:
    """onnxruntime takes only 1 as interleaved, ONNX's function all but 0."""
    nodes = [node("RotaryEmbedding", ["x", "c", "c"], ["y"], name="turn", interleaved=value)]
    model = make_model(nodes, {"x": numpy.zeros((1, 2, 4, 8), "f")}, ["y"], 23, {"c": numpy.ones((1, 4, 4), "f")})
    with pytest.raises(ModelError, match=f"interleaved is {value}, which is neither 0 nor 1") as caught:
        import_onnx(model)
    assert caught.value.node == "turn"


def test_names_that_are_no_text() -> None:
    """protobuf reads them, as bytes."""
    content = model_with([3]).SerializeToString().replace(b"relu", b"re\xffu")
    with pytest.raises(ModelError, match="the name .* is not valid UTF-8"):
        import_onnx(onnx.ModelProto.FromString(content))
