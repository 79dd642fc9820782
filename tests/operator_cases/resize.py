"""Resizing."""

from __future__ import annotations

from operator_cases import floats, ints, several

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROI = floats(0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3)
RESIZES = [
    *several("Upsample", (7,), [((1, 2, 3, 4),)], [{"mode": m, "scales": [1.0, 1.0, 2.0, 1.5]} for m in ("nearest",
        "linear")]),
    *several("Upsample", (9,), [((1, 2, 3, 4), floats(1, 1, 2, 1.5))], [{"mode": "nearest"}, {"mode": "linear"}]),
    *several("Resize", (10,), [((1, 2, 5, 4), floats(1, 1, h, w)) for h,
        w in ((2, 3), (0.6, 0.5), (1.7, 1), (0.3, 2.6))], [
        {"mode": "nearest"}, {"mode": "linear"}]),
    *several("Resize", (11, 13, 19), [
        ((1, 2, 5, 4), floats(), floats(1, 1, 2, 1.6)), ((1, 2, 5, 4), floats(), floats(1, 1, 0.6, 0.3)),
        ((1, 2, 5, 4), floats(), floats(), ints(1, 2, 3, 7)),
        ((1, 2, 5, 4), floats(), floats(), ints(1, 2, 1, 1))],
        [{"mode": "nearest", "coordinate_transformation_mode": c, "nearest_mode": n} for c in COORDINATES
         for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")] +
        [{"mode": m, "coordinate_transformation_mode": c} for m in ("linear", "cubic") for c in COORDINATES] +
        [{"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": e} for e in (0, 1)]),
    *several("Resize", (11,), [((1, 2, 5, 4), floats(), floats(1, 1, 2, 0.7))], [
        {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}]),
    *several("Resize", (19,), [((1, 2, 5, 4), None, floats(1, 1, 1.3, 0.7)),
        ((1, 2, 5, 4), None, None, ints(1, 2, 3, 7))], [
        {"mode": m, "coordinate_transformation_mode": "half_pixel_symmetric"} for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (11, 13, 19), [((1, 2, 5, 4), ROI, floats(), ints(1, 2, 6, 3)),
        ((1, 2, 5, 4), ROI, floats(), ints(1, 2, 1, 3))], [
        {"mode": m, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
        for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (18, 19), [((1, 2, 9, 10), None, floats(1, 1, 0.4, 0.55)),
        ((1, 2, 9, 10), None, None, ints(1, 2, 3, 14)),
                                  ((1, 2, 9, 10), None, floats(1, 1, 1.5, 1.3))], [
        {"antialias": 1, **settings} for settings in (
            {"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1},
            {"mode": "linear", "exclude_outside": 1},
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"})], tolerance=5e-6),
    *several("Resize", (11, 19), [((1, 2, 5, 4), floats(0, 0, 0, 0.5, 1, 1, 1, 1.5), floats(1, 1, 2.5, 1.7))], [
        {"mode": m, "coordinate_transformation_mode": "tf_crop_and_resize"} for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (18, 19), [((1, 2, 6, 4), None, None, ints(9, 10))], [
        {"axes": axes, "mode": "linear", "keep_aspect_ratio_policy": p}
        for p in ("stretch", "not_larger", "not_smaller") for axes in ([2, 3], [3, 2])]),
    *several("Resize", (18,), [((1, 2, 6, 4), None, floats(2, 0.5))], [{"axes": [-1, -2], "mode": "nearest"}]),
    *several("Resize", (13,), [((1, 1, 1, 20), None, None, ints(1, 1, 1, 6)), ((1, 1, 1, 20), None, None,
        ints(1, 1, 1, 26))], [{"mode": "nearest", "nearest_mode": f"round_prefer_{n}"} for n in ("floor", "ceil")]),
    *several("Resize", (13,), [((6, 4), None, floats(2, 0.5))], [{"mode": m} for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (13,), [((1, 2, 3, 4, 3), None, floats(1, 1, 2, 0.5, 1.5)),
        ((1, 2, 3, 4, 3), None, None, ints(1, 2, 2, 5, 3))], [
        {"mode": "nearest"}, {"mode": "linear"}]),
    *several("Resize", (13,), [((4,), None, floats(2.5)), ((3, 2, 4), None, floats(2.5, 1, 0.5))],
        [{"mode": "nearest"}]),
]
