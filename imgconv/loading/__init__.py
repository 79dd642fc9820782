"""From a model's source to a session: the decisions of `load` for an opened device, and the writing of compiled files.

compiled.py        a model's plans for the shapes that come, from an ONNX file, a Graph or a compiled file
progress.py        how far a load is, on a terminal or in a notebook
states.py          checks of what stays on the device from run to run
replanning.py      other plans if the compiler crashes at a kernel, or allows few work items for one
target.py          an opened device as the compiler sees it; description.py: one that is not present;
                   targets.py: compiled files for such devices, by a machine without any
native_functions.py  how exact the device's native functions are: measured once
device_subgraphs.py  parts of the host's work that run on the device
tuner.py           which specialisation is fastest, found by running
"""
