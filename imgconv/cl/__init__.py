"""Everything that talks to OpenCL: no other package imports pyopencl.

device.py          which devices there are, what they can do, opening one
drivers.py         which drivers are installed, and what became of each
image.py           RGBA images and buffers: create, upload, download, fill, copy, map
program.py         compile OpenCL C, look kernels up
program_cache.py   built programs on disk
build_processes.py builds in other processes
crashes.py         kernels at which a driver's compiler crashed or hung
queue.py           enqueue, finish, time
recording.py       launches that one call replays
transfer.py        copies that do not block, pinned and shared memory
loader.py          functions of the OpenCL library that pyopencl lacks
ending.py          daemon threads and the end of the interpreter
busy.py            work that keeps a GPU busy before timed launches
"""
