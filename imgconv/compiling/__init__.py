"""From a Graph to a Plan. A device is a set of numbers here; nothing is allocated, built or run.

compiler.py     the entry point: from a graph to a plan
place.py        where each value is stored, and the steps of the plan; textures.py has the textures
choose.py       chooses each step's specialisation
emit.py         kernel texts and packed weights
lower.py        runs these three in order
plan.py         Plan and Launch, the result
memory.py       lifetimes of textures, and which textures share memory
packings.py     plans for several input shapes share packed weights
"""
