"""Runs a plan on an opened device: allocates memory, enqueues launches, handles inputs and outputs.

session.py         Session: a plan with its device_memory.py, programs.py and launches.py
io_binding.py      checks and converts a caller's arrays, buffers and images; zero_copy.py uses arrays in place
pipeline.py        frames in flight; frame_memory.py: the memory of one frame; mapped.py: the same for the caller;
                   picture_input.py: inputs from pictures of any size
host_fallback.py   runs the host's part after the device's
measuring.py       times launches and copies
"""
