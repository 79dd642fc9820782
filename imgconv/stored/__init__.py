"""What is kept of models from one process to the next. A line in here knows files, graphs and plans, and runs nothing.

compiled_file.py    plan, graph, weights and programs in one file; serial.py writes its values
tuning.py           measurements of specialisations, an SQLite file, and the chooser that reads it
precision_file.py   which values keep float
"""
