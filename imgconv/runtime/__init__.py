"""A plan on an opened device: the memory it allocates, the launches it enqueues, and its inputs and outputs.

session.py         Session: a plan with its device_memory.py, programs.py and launches.py
io_binding.py      checks and converts the arrays, buffers and images of a caller; zero_copy.py uses them where they lie
pipeline.py        frames in flight; frame_memory.py is that of one frame, mapped.py gives it to the caller;
                   picture_input.py makes inputs of pictures of any size
host_fallback.py   what the host computes after the device
measuring.py       how long launches and copies take
"""
