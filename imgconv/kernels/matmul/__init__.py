"""The template of matmul.cl."""
