"""From a model's source to a session: the decisions of `load` for an opened device, and the writing of compiled files.

compiled.py        a model's plans for given input shapes, from an ONNX file, a Graph or a compiled file
plans.py           plans a graph for a device; file_plans.py: for those of a compiled file, which save.py writes
plan_cache.py      keeps plans of ONNX files on disk
progress.py        the progress of a load, on a terminal or in a notebook
states.py          checks the states that stay on the device from run to run
replanning.py      makes a new plan if the compiler crashes at a kernel, or limits a kernel's work groups
device_target.py   an opened device as the compiler sees it; device_descriptions.py: a device that is not present;
                   offline_compile.py: writes compiled files for such devices, without an OpenCL driver
native_functions.py  measures once how accurate the device's native functions are
device_subgraphs.py  runs parts of the host's work on the device
tuner.py           measures which specialisation is fastest; build_options_tuner.py: which build options are
"""
