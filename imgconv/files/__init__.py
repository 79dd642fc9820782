"""Bytes on disk. Code in here knows no graph and no plan.

disk.py         files that appear whole or not at all
archive.py      a file of named sections with checksums
"""
