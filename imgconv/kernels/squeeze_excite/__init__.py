"""Squeeze-and-excitation in one launch."""
