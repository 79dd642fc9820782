"""From a node to a kernel: source, arguments and sizes. Devices are described by numbers; nothing here calls OpenCL.

layout.py              the texel and lane of each element; tiles for grids above the image limit
specialise.py          makes a kernel's source from a .cl template and its constants
kernel_source.py       KernelSource: a kernel's source, with its arguments and sizes
target.py              a device as numbers
template_interface.py  the interface of a template; templates.py has the table of templates
codegen/               loads, stores and epilogues of all kernels, and the generated kernels
lib/                   OpenCL source that several templates include
device_model/          predicts the time of a launch on each kind of device
conv/ matmul/ separable/ winograd/ squeeze_excite/ order/ recurrent/ suppression/
                       the hand-written kernels, one folder per family: the .cl template and its Python module

conv.cl and matmul.cl themselves are in the parent folder.
"""
