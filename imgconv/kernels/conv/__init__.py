"""The template of conv.cl, conv_tiled.cl and depthwise.cl."""
