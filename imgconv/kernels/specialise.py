"""Specialises a kernel template: a .cl file that declares each constant as ``#ifndef NAME / #define NAME default``.

A template includes other .cl files of the package by their path: ``#include "kernels/lib/output.cl"``. Each file is
inserted once, at its first include. ``cl/common.cl`` is left out, because a program has it once, before all kernels.

A program contains several templates, whose definitions must not collide. So each function gets a unique name, and all
macros are undefined at the end of the template.

The specialised source has neither the defaults nor comments: compiled files contain it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_DEFAULT = re.compile(r"^#ifndef (\w+)\n#define \1\b", re.MULTILINE)
_DEFINITION = re.compile(r"^#define (\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^inline [\w ]*?(\w+)\(", re.MULTILINE)
_COMMENT = re.compile(r"[ \t]*//[^\n]*|[ \t]*/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^#include "([^"\n]*)"\n', re.MULTILINE)
FOLDER = Path(__file__).parents[1]
COMMON_FILE = "cl/common.cl"


@lru_cache
def template_text(file: str) -> str:
    """The text of a template with its includes. Raises ValueError if an included file is not in the package."""
    return _expand_includes(file, {COMMON_FILE})


def _expand_includes(file: str, done: set[str]) -> str:
    """The text of a file with its includes, except those in `done`. Adds the inserted ones to `done`."""

    def included_text(match: re.Match[str]) -> str:
        name = match[1]
        if name in done:
            return ""
        if name not in template_files():
            raise ValueError(f"{file} includes {name}, which is not a .cl file of the package")
        done.add(name)
        return _expand_includes(name, done)

    text = (FOLDER / file).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return _INCLUDE.sub(included_text, text)


def without_comments(text: str) -> str:
    """OpenCL source without its comments and empty lines."""
    return re.sub(r"\n{2,}", "\n", _COMMENT.sub("", text)).lstrip("\n")


@lru_cache
def template_body(file: str) -> str:
    """The text of a template without comments, and without the defaults of the constants that `specialise` defines."""
    wanted = template_names(file)
    default = r"^#ifndef (\w+)\n#define \1\b(?:[^\n]*\\\n)*[^\n]*\n#endif\n"
    return re.sub(
        default, lambda found: "" if found[1] in wanted else found[0], without_comments(template_text(file)), flags=re.M
    )


@lru_cache
def template_files() -> frozenset[str]:
    """The paths of the package's .cl files, relative to the package."""
    return frozenset(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cl"))


@lru_cache
def template_names(file: str) -> frozenset[str]:
    """The names of a template's constants, except NAME, which is defined when a program is assembled."""
    return frozenset(_DEFAULT.findall(template_text(file))) - {"NAME"}


@lru_cache
def _functions_and_macros(file: str) -> tuple[list[str], list[str]]:
    """The names of a template's functions, and the macros that it defines."""
    text = template_body(file)
    return _FUNCTION.findall(text), _DEFINITION.findall(text)


def specialise(file: str, constants: Mapping[str, str | int], functions: str = "") -> str:
    """Returns the source of a kernel: helper functions, a #define for each constant, the template, and an #undef for
    each name.

    constants: a text or an integer for each name. A macro's name has its parameters: ``READ_INPUT(x, y)``. functions:
    the helper functions. A function of the template, ``inline float4 f(...)``, is renamed to f_ and a hash. Raises
    ValueError for a name that the template does not have, and for a name that is missing.
    """
    given = {re.match(r"\w+", name)[0]: f"{name} {value}" for name, value in constants.items()}  # type: ignore[index]
    wanted, text = template_names(file), template_body(file)
    if unknown := sorted(given.keys() - wanted):
        raise ValueError(f"{file} has no constant {', '.join(unknown)}")
    if missing := sorted(wanted - given.keys()):
        raise ValueError(f"{file} needs {', '.join(missing)}")
    defined = "".join(f"#define {definition}\n" for definition in given.values())
    own = hashlib.sha256((functions + defined + text).encode()).hexdigest()[:12]
    named, definitions = map(dict.fromkeys, _functions_and_macros(file))
    defined += "".join(f"#define {name} {name}_{own}\n" for name in named)
    ended = dict.fromkeys([*given, *named, *definitions])
    return functions + defined + text + "".join(f"#undef {name}\n" for name in ended if name != "NAME")
