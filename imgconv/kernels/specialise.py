"""Specialise a kernel template: a .cl file whose constants each stand as ``#ifndef NAME / #define NAME default``.

A template includes other .cl files of the package by their path in it: ``#include "kernels/output.cl"``. Each is put in
once, where it is first asked for. ``cl/common.cl`` is left out: it stands once before all kernels of a program.

What a template defines is its own, though many stand in one program: its functions get names of their own, and all of
its definitions end after it.
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
_INCLUDE = re.compile(r'^#include "([^"\n]*)"\n', re.MULTILINE)
FOLDER = Path(__file__).parents[1]
COMMON = "cl/common.cl"


@lru_cache
def template_text(file: str) -> str:
    """The text of a template in this folder, with what it includes. Raises ValueError where that is no such file."""
    return _expanded(file, {COMMON})


def _expanded(file: str, done: set[str]) -> str:
    """The text of a file with its includes, but for those in `done`, to which they are added."""

    def included(match: re.Match[str]) -> str:
        name = match[1]
        if name in done:
            return ""
        if name not in template_files():
            raise ValueError(f"{file} includes {name}, which is no .cl file of the package")
        done.add(name)
        return _expanded(name, done)

    text = (FOLDER / file).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return _INCLUDE.sub(included, text)


@lru_cache
def template_files() -> frozenset[str]:
    """Every .cl file of the package, by its path in it."""
    return frozenset(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cl"))


@lru_cache
def template_names(file: str) -> frozenset[str]:
    """The names that a template wants defined. The kernel's own NAME is given when programs are put together."""
    return frozenset(_DEFAULT.findall(template_text(file))) - {"NAME"}


def specialise(file: str, constants: Mapping[str, str | int], functions: str = "") -> str:
    """The template with every name defined: helper functions, definitions, the file, and the names undefined again.

    constants: text or integer by name; a name with parameters is written with them, as ``READ_INPUT(x, y)``. A function
    of the template, ``inline float4 f(...)``, is called f_ and a hash of all this in the program.
    Raises ValueError for a name that the template does not have, and for one of its names that is not given.
    """
    given = {re.match(r"\w+", name)[0]: f"{name} {value}" for name, value in constants.items()}  # type: ignore[index]
    wanted, text = template_names(file), template_text(file)
    if unknown := sorted(given.keys() - wanted):
        raise ValueError(f"{file} has no constant {', '.join(unknown)}")
    if missing := sorted(wanted - given.keys()):
        raise ValueError(f"{file} needs {', '.join(missing)}")
    defined = "".join(f"#define {definition}\n" for definition in given.values())
    own = hashlib.sha256((functions + defined + text).encode()).hexdigest()[:12]
    named = dict.fromkeys(_FUNCTION.findall(text))
    defined += "".join(f"#define {name} {name}_{own}\n" for name in named)
    ended = dict.fromkeys([*given, *named, *_DEFINITION.findall(text)])
    return functions + defined + text + "".join(f"#undef {name}\n" for name in ended if name != "NAME")
