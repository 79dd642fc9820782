"""Sampling at computed positions, pooling that knows where, windows and determinants."""

from __future__ import annotations

import numpy
from operator_cases import AUTO_PADS, Constant, different, either, ints, several, whole

GRID = numpy.random.default_rng(8).uniform(-1.7, 1.7, (2, 3, 5, 2)).astype(numpy.float32)
GRID_3D = numpy.random.default_rng(8).uniform(-1.5, 1.5, (2, 2, 3, 2, 3)).astype(numpy.float32)
PADDINGS = ("zeros", "border", "reflection")
REGIONS = numpy.float32([[0.4, 1.1, 6.7, 5.2], [2, 0, 3, 7.9], [-2, -3, 9, 4], [5, 5, 5.2, 5.1]])
SAMPLINGS = [
    *several("GridSample", (16,), [((2, 3, 6, 5), GRID)], [
        {"mode": m, "padding_mode": p, "align_corners": a} for m in ("bilinear", "nearest", "bicubic")
        for p in PADDINGS for a in (0, 1)], tolerance=2e-5),
    *several("GridSample", (20, 22), [((2, 3, 6, 5), GRID)], [
        {"mode": m, "padding_mode": p, "align_corners": a} for m in ("linear", "nearest", "cubic")
        for p in PADDINGS for a in (0, 1)], tolerance=2e-5),
    *several("GridSample", (20,), [((2, 3, 4, 6, 5), GRID_3D)], [
        {"mode": m, "padding_mode": p, "align_corners": a} for m in ("linear", "nearest")
        for p in PADDINGS for a in (0, 1)], tolerance=2e-5),
    *several("GridSample", (20,), [((2, 3, 6, 5), Constant(GRID))], tolerance=2e-5),
    *several("AffineGrid", (20,), [((2, 2, 3), ints(2, 1, 4, 3)), ((2, 3, 4), ints(2, 3, 4, 3, 5))],
        [{}, {"align_corners": 1}]),
    *(case for op in (10, 16) for rois in (Constant(REGIONS), REGIONS) for case in several(
        "RoiAlign", (op,), either((2, 3, 8, 7), rois, numpy.array([1, 0, 1, 0])), [
            {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.8, "mode": m}
            for m in ("avg", "max")])),
    *several("RoiAlign", (10, 16), either((2, 3, 8, 7), Constant(REGIONS), numpy.array([1, 0, 1, 0])), [
        {"output_height": 2, "output_width": 3, "mode": m} for m in ("avg", "max")]),
    *several("RoiAlign", (16,), [((2, 3, 8, 7), REGIONS, numpy.array([1, 0, 1, 0]))], [
        {"sampling_ratio": 1, "coordinate_transformation_mode": "output_half_pixel"}]),
    *several("MaxRoiPool", (7,), [((2, 3, 8, 7), numpy.float32([[1, 0, 1, 5, 6], [0, 2, 2, 3, 3], [1, 0, 0, 13, 15]]))],
        [{"pooled_shape": [3, 2]}, {"pooled_shape": [2, 2], "spatial_scale": 0.5}]),
    *several("MaxPool", (8, 12), [(different(2, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], "strides": [2, 2], "storage_order": s, **more} for s in (0, 1)
        for more in ({}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"})], outputs=2),
    *several("MaxPool", (10, 22), [(different(1, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1, "pads": [1, 1, 1, 0]},
        {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1]}], outputs=2),
    *several("MaxPool", (12,), [(different(2, 3, 9),)], [{"kernel_shape": [3], "pads": [1, 1]}], outputs=2),
    *several("MaxPool", (12,), [(different(1, 2, 4, 5, 6),)],
        [{"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "storage_order": s} for s in (0, 1)], outputs=2),
    *several("MaxPool", (12,), [(whole(1, 2, 6, 5, low=-128, high=-126, dtype=numpy.int8),)],
        [{"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}], outputs=2),
    *several("MaxUnpool", (9, 11), either((1, 1, 2, 2), numpy.array([[[[5, 2], [8, 15]]]])), [
        {"kernel_shape": [2, 2], "strides": [2, 2]}]),
    *several("MaxUnpool", (11,), either((1, 2, 2, 2), numpy.array([[[[0, 3], [8, 11]], [[21, 19], [24, 31]]]])), [
        {"kernel_shape": [2, 2], "strides": [2, 2]}]),
    *several("MaxUnpool", (9,), either((1, 1, 3), numpy.array([[[1, 3, 4]]])), [{"kernel_shape": [2], "strides": [2]}]),
    *several("LpPool", (7, 11, 18, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], **more} for more in (
            {}, {"p": 1}, {"p": 3, "strides": [2, 2]}, {"strides": [2, 2], "pads": [1, 0, 1, 1]},
            *({"strides": [2, 3], **a} for a in AUTO_PADS))], tolerance=1e-5),
    *several("LpPool", (18, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 3], "dilations": [2, 2]}, {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}],
        tolerance=1e-5),
    *several("LpPool", (11, 18), [((2, 3, 9),), ], [{"kernel_shape": [3]}], tolerance=1e-5),
    *several("LpPool", (18,), [((1, 2, 4, 5, 3),), ], [{"kernel_shape": [2, 2, 2]}], tolerance=1e-5),
    *several("GlobalLpPool", (7,), [((2, 3, 5),), ((2, 3, 4, 5),)], [{}, {"p": 1}, {"p": 3}], tolerance=1e-5),
    *several("Col2Im", (18,), [((2, 12, 9), ints(4, 4), ints(2, 2))], [{}]),
    *several("Col2Im", (18,), [((1, 12, 4), ints(5, 6), ints(2, 3)), ], [{"strides": [3, 3]}, ]),
    *several("Col2Im", (18,), [((1, 18, 12), ints(5, 6), ints(3, 3))], [{"pads": [1, 0, 1, 0]} | {"strides": [2, 1]}]),
    *several("Col2Im", (18,), [((1, 8, 12), ints(5, 5), ints(2, 2))],
        [{"dilations": [2, 1], "pads": [0, 0, 0, 0]}]),
    *several("CenterCropPad", (18,), [((3, 6, 5), ints(4, 4, 5)), ((3, 7, 6), ints(3, 10, 9)),
        ((3, 7, 6), ints(2, 4, 3))]),
    *several("CenterCropPad", (18,), [((3, 6, 5), ints(9, 2))], [{"axes": [1, 2]}, {"axes": [-1, 0]}]),
    *several("Det", (11, 22), [((2, 2),), ((5, 3, 3),), ((2, 1, 4, 4),), ((1, 1),)], tolerance=1e-5),
]
