"""A simulator of Adreno GPUs (a6xx, a7xx): runs machine code, as Mesa's disassembler prints it, on numpy arrays.

listing.py reads the text, arithmetic.py has what instructions compute, registers.py and memory.py what they read and
write, waves.py runs them, launches.py runs whole kernels and plans, checked.py compares each launch with its graph. No
timing is simulated: instructions, texture reads and trips are counted.
"""
