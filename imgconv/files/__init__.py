"""Bytes on disk. Code in here knows no graph and no plan.

disk.py         files that appear whole or not at all
container.py    a file of a head and of blobs, with checksums
flat.py         FlatBuffers by their schema
"""
