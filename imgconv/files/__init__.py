"""Reads and writes bytes on disk. Nothing here depends on graphs or plans.

disk.py         files that appear whole or not at all
disk_cache.py   files in the user's cache folder, for later processes
crash_marks.py  marks of work that a process may not survive
container.py    a file with a head and blobs, with checksums
flat.py         FlatBuffers, by their schema
"""
