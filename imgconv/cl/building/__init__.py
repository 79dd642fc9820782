"""Builds OpenCL programs: in this process or in others, cached on disk, without kernels that crash the compiler.

program.py         builds programs, caches their binaries, and creates kernels
processes.py       builds in other processes, for drivers that build one program at a time in each; worker.py is one
crashes.py         kernels at which a driver's compiler crashed or hung
"""
