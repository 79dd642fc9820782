"""Programs: compiled here or by other processes, kept on disk, and without the kernels at which a compiler crashes.

program.py         builds programs, keeps their binaries, and makes kernels of them
processes.py       other processes that build for drivers which build one program at a time in each; worker.py is one
crashes.py         kernels at which a driver's compiler crashed or hung
"""
