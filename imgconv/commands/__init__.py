"""The commands of the command line, one a file: DESCRIPTION, add_arguments(parser), execute(options)."""
