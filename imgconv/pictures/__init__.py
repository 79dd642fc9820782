"""Reads, prepares and writes pictures on the host. Nothing in this folder uses OpenCL.

host.py      reads a file into a model's input array, and writes output images; users import imgconv/preprocess.py
sources.py   the files, folders, patterns, videos, cameras and streams that a command line names
video.py     frames of videos and cameras
tiles.py     divides a large picture into overlapping tiles
"""
