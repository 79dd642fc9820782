"""Compiles a Graph to a Plan. Devices are described by numbers; nothing here allocates, builds or runs anything.

compiler.py          the entry point
place.py             decides where each value is stored, and makes the steps of the plan
textures.py          chooses the layouts and textures of values, and which are fp16
choose.py            chooses the specialisation of each step
emit.py              kernel sources and packed weights
lower.py             runs place, choose and emit in order
plan.py              Plan and Launch, the result
memory_planning.py   lifetimes of textures, and which textures share memory
shared_packings.py   makes plans for several input shapes share packed weights
"""
