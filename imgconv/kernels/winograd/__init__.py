"""Winograd convolution in two dimensions."""
