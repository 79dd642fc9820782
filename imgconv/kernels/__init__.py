"""From a node to a kernel's text, arguments and sizes. A line in here knows numbers of a device, and no OpenCL call.

layout.py       which texel and lane holds an element; tiles past the image limit
access.py       loads and stores as OpenCL text
epilogue.py     what is fused into a store
specialise.py   a .cl template and its constants become a kernel's text
limits.py       a device as numbers
step.py         what a template is; templates.py has the table of them
conv.py         the problem and specialisations of conv.cl and depthwise.cl; conv_text.py fills their constants,
                conv_weights.py packs their weights, conv_choice.py has their candidates and costs, conv_template.py
                says which nodes they compute
matmul.py       the twin of matmul.cl; separable.py of separable.cl
costs.py        the numbers of the cost models
generated.py    every other operation; windows.py is a form of it for windows that overlap
rows.py         reductions over the same rows as one kernel; rows_text.py makes it
"""
