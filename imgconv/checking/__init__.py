"""Checks of launches: sampled outputs next to the graph's own meaning in float64, on the device of the user.

    bounded.py        numbers with bounds of the errors that float and half arithmetic may make
    sampled.py        nodes evaluated at some positions
    positions.py      the positions of an output that are compared
    subjects.py       what each launch of a plan computes, by the graph
    comparing.py      what a launch wrote next to what it should have written
    frames.py         the kernel that reads a camera's frames, which is in no plan
    launch_checks.py  samples of what launches make of drawn numbers, for the player
    replacements.py   launches in their plainest form, for the player
    shrinking.py      a wrong convolution or product alone, at the smallest sizes that are wrong
    proving.py        a plan run launch by launch on its device; what is known to be right there
"""
