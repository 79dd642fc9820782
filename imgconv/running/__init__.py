"""A model on an opened device: its plans, what they allocate and enqueue, and what only a run can find out.

A line in here may call imgconv.cl. What a graph and a device's numbers decide is decided in compiling/.

session.py         Session: a plan with its device_memory.py, programs.py, launching.py and measuring.py
exchange.py        the arrays, buffers and images of a caller
pipeline.py        frames in flight; frame_memory.py is that of one frame, mapped.py gives it to the caller;
                   picture_port.py makes inputs of pictures of any size
stream.py          states between frames
compiled.py        a model's plans for the shapes that come
replanning.py      other plans if the compiler crashes at a kernel, or allows few work items for one: work_groups.py
target.py          an opened device as the compiler sees it; description.py: one that is not at hand;
                   targets.py: compiled files for such devices, by a machine without any
native_functions.py  how exact the device's native functions are: measured once
precision.py       which values keep float, found by running: rounding.py by the half plan alone, on the inputs of
                   drawings.py; numbers.py is what it does on the device
tuner.py           which specialisation is fastest, found by running; timing.py
"""
