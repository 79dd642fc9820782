"""Bytes on disk. A line in here knows no graph and no plan.

disk.py         files that are written whole or not at all
archive.py      a file of named parts with checksums
"""
