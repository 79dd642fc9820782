"""Depthwise and 1x1 convolutions in one launch: the template of separable.cl."""
