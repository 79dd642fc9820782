"""Chooses, under FLOAT16, which values stay fp32 and how layers sum, by running the model.

choose.py              choose_precision: first the values that are known in advance, then the searches
storage.py             the search for the values that are stored as fp16
search.py              the search algorithm: as many fp16 values as a bound on the error allows, by trial runs
loss.py                the error measure: how much outputs change when chosen values are rounded to fp16
sums.py                the search for the layers that sum in fp16, or in fp16 chunks
tiles.py               the search for the layers that use Winograd's F(4x4, 3x3) on phones
calibration_inputs.py  synthetic calibration inputs, and overflow probes
statistics.py          the largest magnitudes of a session's values, and rounding, on the device
share.py               reports which fraction of a plan is fp16, and why the rest is not
integer_sums.py        reports which launches of a quantised network sum integers, and why the others do not
"""
