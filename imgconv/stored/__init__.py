"""What is kept of models from one process to the next. A line in here knows files and plans, and runs nothing.

saved.py        the compiled file; serial.py writes its values
tuning.py       measurements of specialisations, an SQLite file
precision_file.py   which values keep float
"""
