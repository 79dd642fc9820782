"""A test that cannot run here skips with a reason: one that returns early counts as passed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent


def returns(node: ast.AST) -> Iterator[int]:
    """The lines of a function's own return statements, not of those of functions inside of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child.lineno
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from returns(child)


def returning(text: str) -> dict[str, list[int]]:
    """The test functions of a module that have a return statement, with their lines."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    found = {each.name: [*returns(each)] for each in functions if each.name.startswith("test_")}
    return {name: lines for name, lines in found.items() if lines}


def test_no_test_returns() -> None:
    modules = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    found = {path: lines for path, text in modules.items() if (lines := returning(text))}
    assert not found, "pytest.skip says why a test does not run"


def test_an_early_return_is_found() -> None:
    text = """
def test_early(device):
    if not device.half:
        return
def test_inner():
    def inner():
        return 1
    assert inner() == 1
def helper():
    return 2
"""
    assert returning(text) == {"test_early": [4]}
