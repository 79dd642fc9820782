"""Files that keep models, tuning and precision for later processes. Nothing here runs a model.

compiled_file.py    plan, graph, weights and programs in one file; model.fbs is its schema
codec.py            frozen dataclasses as tables of a schema, and back, by their fields
tables.py           the tables of model.fbs and our dataclasses; plan_table.py: a Plan; blobs.py: arrays
frame_table.py      frames in memory of any layout, for the player
tuning.py           measurements of specialisations, an SQLite file, and the chooser that reads it
precision_file.py   which values keep float
description_file.py  what outputs mean: the JSON file next to an ONNX file
"""
