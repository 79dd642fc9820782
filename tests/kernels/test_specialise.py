"""Specialised templates: nothing unknown, nothing missing, every constant with a default and a meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imgconv.kernels import specialise as template
from imgconv.kernels.specialise import specialise, template_body, template_files, template_names, template_text
from imgconv.kernels.templates import TEMPLATES

# Templates have a kernel, whose name is given to it; the other files are included by them. The kernel for frames is not
# specialised by a plan.
FRAMES = "preprocessing/frame.cl"
FILES = sorted(
    file for file in template_files() - {FRAMES} if " void NAME(" in (template.FOLDER / file).read_text("utf-8")
)
# ``#ifndef NAME``, then ``#define NAME[(parameters)] default [// meaning]``, then ``#endif``.
CONSTANT = re.compile(r"^#ifndef (\w+)\n#define (\w+)(\([\w, ]*\))?([^\n]*)\n#endif$", re.MULTILINE)


def complete(file: str) -> dict[str, str | int]:
    return dict.fromkeys(template_names(file), "1")


def test_the_file_of_every_template_is_tested() -> None:
    others = {"kernels/conv/depthwise.cl", "kernels/conv/conv_tiled.cl"}
    assert others | {*(row.file for row in TEMPLATES if row.file != "generated")} == set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_an_unknown_name_is_an_error_that_names_it(file: str) -> None:
    with pytest.raises(ValueError, match=rf"{file} has no constant INPUT_WIDHT"):
        specialise(file, {**complete(file), "INPUT_WIDHT": 5})


@pytest.mark.parametrize("file", FILES)
def test_each_missing_name_is_an_error_that_names_it(file: str) -> None:
    for name in template_names(file):
        given = complete(file)
        del given[name]
        with pytest.raises(ValueError, match=rf"{file} needs {name}$"):
            specialise(file, given)


@pytest.mark.parametrize("file", FILES)
def test_a_name_with_parameters_counts_as_its_name(file: str) -> None:
    given = complete(file)
    del given["EPILOGUE"]
    text = specialise(file, {**given, "EPILOGUE(sum, column, row, quad)": "f(sum)"})
    assert "#define EPILOGUE(sum, column, row, quad) f(sum)\n" in text
    assert text.count("#undef EPILOGUE\n") == 1


@pytest.mark.parametrize("file", FILES)
def test_the_text_defines_each_name_before_the_template_and_undefines_it_after(file: str) -> None:
    given: dict[str, str | int] = {name: number for number, name in enumerate(sorted(template_names(file)))}
    text = specialise(file, given, "inline float helper(void) { return 1.0f; }\n")
    head, middle, tail = text.partition(template_body(file))
    assert middle and "//" not in text and "/*" not in text
    assert set(re.findall(r"^#ifndef (\w+)", text, re.MULTILINE)) == {"NAME"}
    assert head.startswith("inline float helper")
    for name, value in given.items():
        assert f"#define {name} {value}\n" in head
    made = set(re.findall(r"^#define (\w+)", head + middle, re.MULTILINE)) - {"NAME"}
    assert sorted(tail.splitlines()) == sorted(f"#undef {name}" for name in made)


@pytest.mark.parametrize("file", FILES)
def test_functions_have_names_of_their_own(file: str) -> None:
    """Two kernels of one program may be the same template with other constants."""
    given = complete(file)
    first, second = (specialise(file, {**given, "OUTPUT_OFFSET": offset}) for offset in (0, 1))
    functions = set(re.findall(r"^inline [^(\n]*?(\w+)\(", template_text(file), re.MULTILINE))
    assert "write_texel" in functions
    names = [dict(re.findall(r"^#define (\w+) (\w+)$", text, re.MULTILINE)) for text in (first, second)]
    for function in functions:
        assert names[0][function] != names[1][function]
        assert all(made[function].startswith(f"{function}_") for made in names)


def test_a_file_is_included_once_and_common_is_not() -> None:
    text = template_text("conv.cl")
    assert "#include" not in text and "#pragma once" not in text
    assert text.count("#define LINE ") == 1, "kernels/lib/window.cl is included by several"
    assert "sampler_t" not in text


@pytest.mark.parametrize("name", ["kernels/missing.cl", "../setup.cfg", "specialise.py", "/etc/passwd"])
def test_what_is_no_template_cannot_be_included(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "FOLDER", tmp_path)
    template.template_files.cache_clear()
    (tmp_path / "strange.cl").write_text(f'#include "{name}"\n')
    (tmp_path / "specialise.py").write_text("")
    try:
        with pytest.raises(ValueError, match=f"strange.cl includes {name}, which is not a .cl file"):
            template_text("strange.cl")
    finally:
        template.template_files.cache_clear()


def test_every_file_is_part_of_a_template() -> None:
    """One that nothing includes is never specialised, nor tested; four others are no templates."""
    texts = "".join(map(template_text, FILES))
    others = {template.COMMON_FILE, FRAMES, "runtime/picture.cl", "precision/tensor_statistics.cl"}
    for file in template_files() - {*FILES, *others}:
        assert (template.FOLDER / file).read_text().partition("\n")[0] in texts, file


@pytest.mark.parametrize("file", FILES)
def test_every_guarded_name_is_a_wanted_constant_with_a_default(file: str) -> None:
    text = template_text(file)
    guarded = set(re.findall(r"^#ifndef (\w+)", text, re.MULTILINE))
    found = {m[1]: m for m in CONSTANT.finditer(text)}
    assert guarded == found.keys() == template_names(file) | {"NAME"}
    assert all(name == m[2] for name, m in found.items()), "guard and definition differ"


@pytest.mark.parametrize("file", FILES)
def test_every_constant_says_what_it_means(file: str) -> None:
    """A comment, or a macro with parameters beside a commented one: READ_A and its like say it in their default."""
    for match in CONSTANT.finditer(template_text(file)):
        name, parameters, rest = match[1], match[3], match[4]
        default, mark, meaning = rest.partition("//")
        if not parameters:
            assert mark and meaning.strip(), f"{file}: {name} has no comment"
            assert default.strip() or name in ("WORK_GROUP", "EPILOGUE_PARAMETERS"), f"{file}: {name} has no default"
        else:
            assert default.strip(), f"{file}: {name} has no default"


@pytest.mark.parametrize("file", FILES)
def test_defaults_parse(file: str) -> None:
    """Numbers are whole and positive or zero; what names a type, a name or code has balanced parentheses."""
    for match in CONSTANT.finditer(template_text(file)):
        default = match[4].partition("//")[0].strip()
        if not match[3] and default[:1].isdigit():
            assert int(default) >= 0
        assert default.count("(") == default.count(")")


@pytest.mark.parametrize("file", FILES)
def test_every_name_in_capitals_is_a_constant_or_defined_here(file: str) -> None:
    """No use of a name that nothing defines: it would compile as 0 in an #if."""
    text = re.sub(r"//[^\n]*|#pragma OPENCL[^\n]*", "", template_text(file))
    text = re.sub(r'"[^"\n]*"', "", text)
    defined = set(re.findall(r"#define (\w+)", text))
    known = {"TEXEL", "NOT_VECTORIZED", "CLK_LOCAL_MEM_FENCE"}
    used = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))
    assert used <= defined | known, used - defined - known
    assert template_names(file) <= set(re.findall(r"\w+", re.sub(r"#(ifndef|define) \w+", "", text))), "never used"
