"""From a node to a kernel's text, arguments and sizes. A device is a set of numbers here; nothing calls OpenCL.

layout.py       the texel and lane of each element; tiles for grids above the image limit
access.py       loads and stores as OpenCL text
epilogue.py     the elementwise expression that is fused into a store
specialise.py   a kernel's text from a .cl template and its constants
source.py       KernelSource: this text, with its arguments and sizes
target.py       a device as numbers
step.py         the interface of a template; templates.py has the table of templates
conv*.py        the template of conv.cl and depthwise.cl; matmul.py of matmul.cl; separable.py of separable.cl;
                squeeze_excite.py of squeeze_excite.cl
costs.py        the parameters of the cost models
generated.py    every other operation; rows*.py, moments*.py and windows.py are its forms for reductions

The .cl templates are in the parent folder. The .cl files here are the pieces that they include.
"""
