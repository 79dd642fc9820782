"""The Graph: what a model computes, as frozen values. Nothing in this folder knows a device, a texture or a launch.

nodes.py          Node, Graph: the same form for every operation; values.py: Value, Operand
operations/       the nine operations, one a file: fields, check of shapes, meaning in numpy, bounds
view.py           which elements a node reads: reshape, transpose, slice, pad and their compositions
index.py          integer expressions for indices and addresses, and their OpenCL text
expression.py     elementwise expressions, and the table of scalar functions: numpy, OpenCL C, ONNX
evaluate.py       reference semantics of every node, in numpy
value_ranges.py   range analysis: how large values can be; intervals.py: the same of an expression
growth.py         how values grow with the inputs: squares, sums
moved.py          integers that are moved and not computed with
lazy.py           lazy tensors that record operations; users import imgconv/tensor.py
arguments.py      the arguments of calls of the lazy front end, checked where they are written
builder.py        from recorded operations to a Graph
check.py          the check of all that a file may say wrongly
"""
