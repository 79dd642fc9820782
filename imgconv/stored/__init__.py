"""Files that store models, tuning and precision for later processes. Nothing here runs a model.

compiled_file.py    plan, graph, weights and programs in one file; model.fbs is its schema
codec.py            converts frozen dataclasses to tables of a schema and back, by their fields
tables.py           how the tables of model.fbs differ from our dataclasses; plan_table.py: a Plan; blobs.py: arrays
frame_table.py      frames in any memory layout, for the player
tuning.py           measurements of specialisations, an SQLite file, and the chooser that reads it
precision_file.py   the values that stay fp32
description_file.py  what outputs mean: the JSON file next to an ONNX file
"""
