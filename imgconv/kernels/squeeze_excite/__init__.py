"""Squeeze-and-excitation in one launch: the template of squeeze_excite.cl."""
