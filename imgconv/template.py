"""Specialise a kernel template: a .cl file whose constants each stand as ``#ifndef NAME / #define NAME default``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_DEFAULT = re.compile(r"^#ifndef (\w+)\n#define \1\b", re.MULTILINE)
FOLDER = Path(__file__).parent


@lru_cache
def template_text(file: str) -> str:
    """The text of a template in this folder."""
    return (FOLDER / file).read_text(encoding="utf-8")


@lru_cache
def template_names(file: str) -> frozenset[str]:
    """The names that a template wants defined. The kernel's own NAME is given when programs are put together."""
    return frozenset(_DEFAULT.findall(template_text(file))) - {"NAME"}


def specialise(file: str, constants: Mapping[str, str | int], functions: str = "") -> str:
    """The template with every name defined: helper functions, definitions, the file, and the names undefined again.

    constants: text or integer by name; a name with parameters is written with them, as ``READ_INPUT(x, y)``.
    Raises ValueError for a name that the template does not have, and for one of its names that is not given.
    """
    given = {re.match(r"\w+", name)[0]: f"{name} {value}" for name, value in constants.items()}  # type: ignore[index]
    wanted = template_names(file)
    if unknown := sorted(given.keys() - wanted):
        raise ValueError(f"{file} has no constant {', '.join(unknown)}")
    if missing := sorted(wanted - given.keys()):
        raise ValueError(f"{file} needs {', '.join(missing)}")
    defined = "".join(f"#define {text}\n" for text in given.values())
    return functions + defined + template_text(file) + "".join(f"#undef {name}\n" for name in given)
