"""The template of conv.cl and depthwise.cl."""
