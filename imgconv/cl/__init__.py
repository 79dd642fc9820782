"""Everything that talks to OpenCL: no other package imports pyopencl.

opencl_device.py   OpenCLDevice: the Device of imgconv.runtime.device. It is a Context with programs and launches
context.py         Context: memory, copies, launches and events of an opened device
device.py          lists the devices, and opens one; device_info.py: the properties of a device
launch_sequence.py launches that are enqueued again and again
staging.py         the host's side of inputs and outputs; external_memory.py: memory of others
building/          programs
watchdog.py        calls that may never return; shutdown.py: threads in the driver at the end of the process
drivers.py         drivers that are installed; driver_links.py: links to those whose path has a space
priority.py        what drivers are told of a priority
quirks.py          what is done because of a driver, by platform
instruction_set.py what tells CPUs of one name apart
opencl_library.py  functions of the OpenCL library that pyopencl lacks
"""
