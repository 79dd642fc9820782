"""From a node to a kernel's text, arguments and sizes. A device is a set of numbers here; nothing calls OpenCL.

layout.py       the texel and lane of each element; tiles for grids above the image limit
specialise.py   a kernel's text from a .cl template and its constants
source.py       KernelSource: this text, with its arguments and sizes
target.py       a device as numbers
step.py         the interface of a template; templates.py has the table of templates
codegen/        loads, stores and epilogues of all kernels, and the kernels that are generated
lib/            the OpenCL pieces that several templates include
device_model/   what a launch takes on each kind of device
conv/ matmul/ separable/ winograd/ squeeze_excite/ order/ recurrent/ suppression/
                the hand-written kernels, a family each: the .cl template and its twin

conv.cl and matmul.cl themselves are in the parent folder.
"""
