"""From a Graph to a Plan. A line in here knows a device as numbers only; nothing is allocated, built or run.

compiler.py          the one way from a graph to a plan
place.py             what lies where, and the steps of the plan; textures.py has the textures and which are half
choose.py            which specialisation of its template each step takes
emit.py              kernel texts and packed weights
lower.py             these three in order
plan.py              Plan and Launch: the result
memory_planning.py   lifetimes of textures, and which of them share memory
packings.py          weights that are on the device already are used again
"""
