"""Bytes on disk. Code in here knows no graph and no plan.

disk.py         files that appear whole or not at all
kept.py         what one process keeps for the next, in the user's cache folder
marks.py        what a process does that may not survive it
container.py    a file of a head and of blobs, with checksums
flat.py         FlatBuffers by their schema
"""
