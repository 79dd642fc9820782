"""Kernels that are generated, and the loads, stores and epilogues of all kernels."""
