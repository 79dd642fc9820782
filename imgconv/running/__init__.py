"""What only a run finds out about a plan's accuracy.

precision.py       which values keep float, found by running: rounding.py by the half plan alone, on the inputs of
                   drawings.py; numbers.py is what it does on the device
"""
