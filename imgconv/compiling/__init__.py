"""From a Graph to a Plan. A device is a set of numbers here; nothing is allocated, built or run.

compiler.py          the entry point: from a graph to a plan
place.py             where each value is stored, and the steps of the plan
textures.py          layouts and textures, and which of them are half
choose.py            chooses each step's specialisation
emit.py              kernel texts and packed weights
lower.py             runs place, choose and emit in order
plan.py              Plan and Launch, the result
memory_planning.py   lifetimes of textures, and which textures share memory
shared_packings.py   plans for several input shapes share packed weights
"""
