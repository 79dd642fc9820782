"""The commands of the command line, one per file: DESCRIPTION, add_arguments(parser), execute(options).

Commands handle options and printed text only. shared_arguments.py and command_line_inputs.py contain code that several
commands share.
"""
