"""Pictures on the host. No code in here uses OpenCL.

host.py      a file to a model's input arrays, and an output image to a file; users import imgconv/preprocess.py
sources.py   the files, folders, patterns, videos, cameras and streams that a command line names
video.py     frames of videos and cameras
tiles.py     a large picture in overlapping tiles
"""
