"""Precision: which values stay float under FLOAT16, and how layers sum, found by running.

choose.py      choose_precision: what is known beforehand, then what is found by running
storage.py     the search for the values that are stored in half
search.py      the search: as much as possible that is narrow within a bound, by trial runs
loss.py        the error measure: what outputs lose when chosen values are really rounded
sums.py        the search for the layers that sum in half, or in chunks of half
inputs.py      synthetic calibration inputs, and overflow probes
statistics.py  the largest magnitudes of a session's values, and rounding, on the device
share.py       the share of a plan that is half, and why the rest is not
"""
