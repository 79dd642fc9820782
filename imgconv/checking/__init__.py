"""Checks whether a driver computes each launch correctly: compares sampled outputs with float64 numpy, on the device.

error_bounds.py    numbers with bounds of the errors that fp32 and fp16 arithmetic may make
sampled.py         evaluates nodes at some positions
positions.py       chooses the positions of an output that are compared
launched_nodes.py  for each launch, the nodes that it computes
comparing.py       compares a launch's results with the expected ones
frame_checks.py    checks the kernel that reads camera frames, which is not part of a plan
kernel_variants.py small graphs that cover every kernel variant
player_checks.py   expected results of launches on random inputs, for the player
replacements.py    plain variants of launches, for the player
shrinking.py       reduces a wrong convolution or product to the smallest sizes that are wrong
session_checks.py  checks a plan launch by launch, and caches the result for the driver
"""
