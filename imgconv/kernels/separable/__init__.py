"""A depthwise and a 1x1 convolution in one launch."""
