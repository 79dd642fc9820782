"""Generated kernels, and the loads, stores and epilogues of all kernels."""
