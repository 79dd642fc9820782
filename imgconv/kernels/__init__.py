"""From a node to a kernel's text, arguments and sizes. A line in here knows numbers of a device, and no OpenCL call.

layout.py       which texel and lane holds an element; tiles past the image limit
access.py       loads and stores as OpenCL text
epilogue.py     what is fused into a store
specialise.py   a .cl template and its constants become a kernel's text
source.py       KernelSource: that text, its arguments and sizes
target.py       a device as numbers
step.py         what a template is; templates.py has the table of them
conv*.py        the twin of conv.cl and depthwise.cl; matmul.py of matmul.cl; separable.py of separable.cl
costs.py        the numbers of the cost models
generated.py    every other operation; rows*.py and windows.py are its forms for reductions

The templates themselves stand one folder up, beside each other; the .cl files in here are the pieces that they include.
"""
