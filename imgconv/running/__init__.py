"""A Plan on an opened device. A line in here may call imgconv.cl; nothing is decided that a plan could say.

session.py      Session: a plan with its memory.py, programs.py, launching.py and measuring.py
exchange.py     the arrays, buffers and images of a caller
pipeline.py     frames in flight; stream.py: states between frames
compiled.py     a model's plans for the shapes that come
target.py       an opened device as the compiler sees it
precision.py    which values keep float, found by running
tuner.py        which specialisation is fastest, found by running; timing.py
"""
