"""imgconv completion: print a completion script for a shell."""

from __future__ import annotations

import argparse

from imgconv.errors import MissingPackageError

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "MODEL", "PICTURE")  # in the name that an argument has in the help

DESCRIPTION = """\
Print a completion script for a shell, which completes imgconv's commands, options and files. To install it:

    imgconv completion bash > ~/.local/share/bash-completion/completions/imgconv
    imgconv completion zsh > ~/.zfunc/_imgconv            # ~/.zfunc is in $fpath
    imgconv completion fish > ~/.config/fish/completions/imgconv.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def execute(options: argparse.Namespace) -> None:
    """Prints the script. options.parser: the parser of the whole command line. Raises MissingPackageError."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise MissingPackageError("shtab", "completion", "imgconv completion") from error
    _add_file_completion(options.parser, shtab.FILE)
    print(shtab.complete(options.parser, shell=options.shell))


def _add_file_completion(parser: argparse.ArgumentParser, files: object) -> None:
    """Sets what shtab looks for at each argument that is a file, and describes each command by the line of the help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for line in action._choices_actions:
                action.choices[line.dest].description = line.help
            for command in action.choices.values():
                _add_file_completion(command, files)
        elif isinstance(action.metavar, str) and any(name in action.metavar for name in FILES):
            vars(action)["complete"] = files
