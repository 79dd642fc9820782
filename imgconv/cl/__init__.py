"""Everything that calls OpenCL. No other package imports pyopencl.

opencl_device.py   OpenCLDevice: implements imgconv.runtime.device.Device; it is a Context with programs and launches
context.py         Context: memory, copies, launches and events of an opened device
device.py          lists the devices, and opens one; device_info.py: the properties of a device
launch_sequence.py launches that are enqueued again and again
staging.py         staging buffers for inputs and outputs; external_memory.py: imported memory, such as camera buffers
building/          programs
watchdog.py        time limits for calls that may never return; shutdown.py: threads in the driver at process exit
drivers.py         installed drivers; driver_links.py: links to drivers whose path has a space
priority.py        the priority of a model's work on the device
quirks.py          workarounds for drivers, by platform
instruction_set.py distinguishes CPUs with the same name
opencl_library.py  functions of the OpenCL library that pyopencl lacks
"""
