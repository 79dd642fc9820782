"""Non-maximum suppression: the template of suppress.cl."""
