"""The commands of the command line, one a file: DESCRIPTION, add_arguments(parser), execute(options).

A line in here knows options and what people read; arguments.py and inputs.py are what several commands share.
"""
