"""Graph forms: what a model computes, as frozen values. A line in here knows no device, no texture and no launch.

nodes.py          Value, Operand, Node, Graph: one form for every operation
view.py           which element a node reads: reshape, transpose, slice, pad, composed
index.py          integer expressions of positions, and their OpenCL text
expression.py     elementwise expressions, and the one table of scalar functions: numpy, OpenCL C, ONNX
evaluate.py       what every node means, in numpy
value_ranges.py   how large values can be
moved.py          integers that only move
lazy.py           operations that are recorded; imgconv/tensor.py is what users import
builder.py        recorded operations to a Graph
"""
