"""A picture to a model's input. A line in here knows no OpenCL. The device's way is a graph put before the model's
own, if all pictures have one size, else numbers beside the pixels.

preparation.py   what a preparation means, and the weights of its filters
host.py          in numpy; imgconv/preprocess.py is what users import
device.py        as graph nodes
pixels.py        as what cl/picture.cl reads
"""
