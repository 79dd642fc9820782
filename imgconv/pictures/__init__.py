"""A picture to a model's input. A line in here knows no OpenCL: the device's way is a graph put before the model's own.

preparation.py   what a preparation means, and the weights of its filters
host.py          in numpy; imgconv/preprocess.py is what users import
device.py        as graph nodes
"""
