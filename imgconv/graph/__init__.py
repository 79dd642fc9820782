"""The Graph: what a model computes, as frozen values. Nothing in this folder depends on devices, textures or launches.

nodes.py          Node and Graph: the same structure for every operation; values.py: Value, Operand
operations/       the operations, one per file: fields, check of shapes, semantics in numpy, bounds
view.py           which elements a node reads: reshape, transpose, slice, pad and their compositions
index.py          integer expressions for indices and addresses, and their OpenCL source
expression.py     elementwise expressions, and the table of scalar functions: numpy, OpenCL C, ONNX
evaluate.py       reference semantics of every node, in numpy
value_ranges.py   range analysis of a graph's values; intervals.py: range analysis of an expression
growth.py         how values grow with the inputs: squares, sums
pass_through.py   integers that are moved and not computed with
lazy.py           lazy tensors that record operations; users import imgconv/tensor.py
argument_check.py checks the arguments of calls of the lazy front end
builder.py        builds a Graph from recorded operations
graph_error.py    the check that rejects invalid graphs from files
"""
