"""The first elements of rows in order of size."""
