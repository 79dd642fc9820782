"""Refusals when a model is read: what imgconv does not do, and what ONNX does not allow."""

from __future__ import annotations

import numpy
import pytest
from operator_cases import Case, Constant, floats, half, ints, model_of, scalar, whole
from operator_cases.features import REFUSED as FEATURES_REFUSED
from operator_cases.features import WRONG as FEATURES_WRONG
from operator_cases.fourier import WRONG as FOURIER_WRONG
from operator_cases.microsoft import REFUSED as MICROSOFT_REFUSED
from support import run_model

from imgconv.errors import ModelError, UnsupportedError

IMAGE = (1, 4, 6, 6)
WEIGHT = (2, 4, 3, 3)
REFUSED = [
    # ONNX allows these, imgconv does not do them.
    *((Case("Celu", 12, (IMAGE,), {"alpha": alpha}), "its inverse is not a normal float")
      for alpha in (float("inf"), float("-inf"), float("nan"), 1e-45, 3e38)),
    (Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID", "ceil_mode": 1}),
     "use pads"),
    (Case("BatchNormalization", 15, (IMAGE, *[(4,)] * 4), {"training_mode": 1}), "training"),
    (Case("BatchNormalization", 9, (IMAGE, *[(4,)] * 4), {}, outputs=5), "training"),
    (Case("Dropout", 13, (IMAGE, scalar(0.5), Constant(numpy.array(True))), {}), "training_mode"),
    (Case("Reshape", 13, (IMAGE, numpy.array([4, 36])), {}), "shape must be constant"),
    (Case("Pad", 13, ((2, 2), numpy.array([1, 0, 0, 0])), {}), "pads must be constant"),
    (Case("Slice", 13, ((2, 2), numpy.array([1]), ints(2)), {}), "starts must be constant"),
    (Case("Resize", 13, (IMAGE, None, numpy.ones(4, "f")), {}), "scales must be constant"),
    (Case("Resize", 13, (IMAGE, floats(0, 0, 0, 0, 1, 1, 0.5, 0.5), floats(1, 1, 2, 2)),
          {"coordinate_transformation_mode": "tf_crop_and_resize"}), "use sizes"),
    (Case("Resize", 13, (numpy.ones((1, 1, 2, 2), "u1"), None, floats(1, 1, 2, 2)), {"mode": "linear"}), "Cast"),
    (Case("Conv", 11, ((1, 1, 2, 2, 2, 2), (1, 1, 1, 1, 1, 1)), {}), "4 spatial axes"),
    (Case("Cast", 19, (IMAGE,), {"to": 17}), "float8e4m3fn"),
    (Case("TopK", 11, (IMAGE, ints(1).array), {}, outputs=2), "k must be constant"),
    (Case("Det", 11, ((5, 5),), {}), "5 rows"),
    (Case("Shrink", 9, (numpy.arange(3),), {}), "Cast them to float"),
    (Case("MatMul", 13, (numpy.ones((2, 2), "i4"), numpy.ones((2, 2), "i4")), {}), "Cast them to float"),
    (Case("Squeeze", 13, (IMAGE, ints()), {}), "empty axes"),
    (Case("LayerNormalization", 17, (IMAGE, (6,)), {"stash_type": 16}), "stash_type"),
]
WRONG = [
    # ONNX does not allow these.
    (Case("Conv", 11, (IMAGE, (2, 3, 3, 3)), {}), "does not match"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"group": 2}), "does not match"),
    (Case("Conv", 11, (IMAGE, WEIGHT, (3,)), {}), "bias"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"kernel_shape": [2, 2]}), "kernel_shape"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"pads": [1, 1]}), "pads"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"pads": [-1, 0, 0, 0]}), "pads"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"strides": [0, 1]}), "strides"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"dilations": [3, 3]}), "does not fit"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"auto_pad": "SAME"}), "auto_pad is 'SAME'"),
    (Case("Conv", 11, (IMAGE, (2, 4, 3)), {}), "equal ranks"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"stride": [1, 1]}), "not valid ONNX"),
    (Case("ConvTranspose", 11, (IMAGE, (4, 2, 3, 3)), {"output_shape": [5]}), "output_shape"),
    (Case("ConvTranspose", 11, (IMAGE, (3, 2, 3, 3)), {}), "does not match"),
    (Case("Add", 13, (IMAGE, (5,)), {}), "broadcast"),
    (Case("Add", 13, (IMAGE, half(1)), {}), "float16"),
    (Case("Add", 13, (IMAGE,), {}), "not valid ONNX"),
    (Case("Mod", 13, (IMAGE, IMAGE), {}), "fmod"),
    (Case("PRelu", 9, ((2, 3), (4, 2, 3)), {}), "does not broadcast"),
    (Case("Reshape", 13, (IMAGE, ints(5, -1)), {}), "cannot have the shape"),
    (Case("Reshape", 13, (IMAGE, ints(-1, -1)), {}), "cannot have the shape"),
    (Case("Transpose", 13, (IMAGE,), {"perm": [0, 1, 2]}), "perm"),
    (Case("Concat", 13, (IMAGE, (1, 4, 5, 6)), {"axis": 1}), "differ"),
    (Case("Concat", 13, (IMAGE,), {"axis": 4}), "no axis 4"),
    (Case("Concat", 13, (IMAGE,), {}), "not valid ONNX"),
    (Case("Gather", 13, ((3,), ints(3)), {}), "outside"),
    (Case("GatherElements", 13, ((3, 4), ints(0, 1)), {}), "indices of"),
    (Case("GatherND", 13, ((3, 4), ints(0, 1, 2)), {}), "batch_dims"),
    (Case("GatherND", 13, ((3, 4), Constant(numpy.zeros((2, 1), int))), {"batch_dims": 1}), "differ"),
    (Case("ScatterND", 18, ((3, 4), Constant(numpy.zeros((2, 1), int)), (2, 3)), {}), "updates of"),
    (Case("ScatterElements", 18, ((3,), ints(0), (2,)), {}), "updates of"),
    (Case("ReverseSequence", 10, ((3, 2), ints(1, 4)), {}), "sequence_lens"),
    (Case("Compress", 11, ((2,), Constant(numpy.array([False, False, True]))), {}), "condition"),
    (Case("TopK", 11, ((3,), ints(4)), {}, outputs=2), "first 4 of 3"),
    (Case("OneHot", 11, (numpy.array([0]), ints(2), (3,)), {}), "values of shape"),
    (Case("Trilu", 14, ((3,),), {}), "not a matrix"),
    (Case("EyeLike", 9, ((3, 2, 2),), {}), "not a matrix"),
    (Case("Det", 11, ((3, 2),), {}), "not a square matrix"),
    (Case("GridSample", 16, (IMAGE, (1, 2, 2, 3)), {}), "a grid of"),
    (Case("GridSample", 16, (IMAGE, (1, 2, 2, 2)), {"mode": "area"}), "mode is"),
    (Case("AffineGrid", 20, ((1, 2, 3), ints(2, 1, 2, 2)), {}), "theta of"),
    (Case("RoiAlign", 16, (IMAGE, (1, 5), ints(0)), {}), "regions of"),
    (Case("MaxRoiPool", 7, (IMAGE, (1, 4)), {"pooled_shape": [2, 2]}), "regions of"),
    (Case("MaxUnpool", 11, (IMAGE, whole(1, 4, 6, 5)), {"kernel_shape": [2, 2]}), "indices of"),
    (Case("Col2Im", 18, ((1, 4, 5), ints(3, 3), ints(2, 2)), {}), "blocks of"),
    (Case("CenterCropPad", 18, (IMAGE, ints(1)), {}), "for axes"),
    (Case("Split", 13, ((7,),), {}, outputs=2), "equal pieces"),
    (Case("Split", 13, ((7,), ints(3, 3)), {}, outputs=2), "do not split"),
    (Case("Squeeze", 13, (IMAGE, ints(1)), {}), "length 1"),
    (Case("Unsqueeze", 13, (IMAGE, ints(1, 1)), {}), "twice"),
    (Case("Softmax", 13, (IMAGE,), {"axis": 4}), "no axis 4"),
    (Case("ReduceSum", 13, (IMAGE, ints(7)), {}), "no axis 7"),
    (Case("Upsample", 13, (IMAGE, floats(1, 1, 2, 2)), {}), "use Resize"),
    (Case("Resize", 13, (IMAGE,), {}), "either scales or sizes"),
    (Case("Resize", 13, (IMAGE, None, floats(1, 1, 2, 2), ints(1, 4, 12, 12)), {}), "either scales or sizes"),
    (Case("Resize", 13, (IMAGE, None, floats(2, 2)), {}), "scales"),
    (Case("Resize", 13, (IMAGE, None, floats(1, 1, 0.1, 1)), {}), "nothing"),
    (Case("Resize", 13, (IMAGE, None, floats(1, 1, 2, 2)), {"mode": "area"}), "mode is 'area'"),
    (Case("DepthToSpace", 13, ((1, 6, 2, 2),), {"blocksize": 2}), "blocks of 2"),
    (Case("MatMul", 13, ((2, 3), (2, 3)), {}), "cannot multiply"),
    (Case("Gemm", 13, ((2, 3), (3, 2), (2, 2, 2)), {}), "does not broadcast"),
    (Case("Slice", 13, (IMAGE, ints(0), ints(1), ints(0), ints(0)), {}), "do not match"),
    (Case("Pad", 13, (IMAGE, ints(1, 1)), {}), "2 pads for 4 axes"),
    (Case("InstanceNormalization", 7, (IMAGE, (3,), (4,)), {}), "4 channels"),
    (Case("Clip", 13, (IMAGE, (6,)), {}), "not a scalar"),
    (Case("AveragePool", 11, (IMAGE,), {"kernel_shape": [1, 1], "pads": [1, 0, 0, 0]}), "nothing but padding"),
    (Case("ReduceSum", 13, (IMAGE,), {"keepdims": 2}), "neither 0 nor 1"),
    (Case("Celu", 12, (IMAGE,), {"alpha": 0.0}), "division by zero"),
    (Case("GlobalMaxPool", 7, (Constant(numpy.zeros((1, 2, 0, 0), "f")),), {}), "zero-size"),
    (Case("Constant", 13, (), {}), "one value attribute"),
    (Case("Tile", 13, (IMAGE, ints(1)), {}), "repeats"),
    (Case("Expand", 13, (IMAGE, ints(5)), {}), "broadcast"),
]


@pytest.mark.parametrize(("case", "fragment"), [pytest.param(*row, id=f"{row[0]}-{n}") for n,
    row in enumerate(REFUSED + MICROSOFT_REFUSED + FEATURES_REFUSED)])
def test_refused(case: Case, fragment: str) -> None:
    model, feeds = model_of(case)
    with pytest.raises(UnsupportedError, match=fragment) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"


@pytest.mark.parametrize(("case", "fragment"), [pytest.param(*row, id=f"{row[0]}-{n}")
    for n, row in enumerate(WRONG + FEATURES_WRONG + FOURIER_WRONG)])
def test_wrong(case: Case, fragment: str) -> None:
    model, feeds = model_of(case)
    with pytest.raises(ModelError, match=fragment) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"
    assert not isinstance(caught.value, UnsupportedError)
