"""A device's instruction for products of bytes is taken if it builds and is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from imgconv.cl import dot_products
from imgconv.cl.context import Context
from imgconv.cl.dot_products import FILE, dot_product, gives_right_sums

TEXT = FILE.read_text(encoding="utf-8")
# Built-in functions as a driver may have them: right, of unsigned bytes only, and one that is only declared.
RIGHT = """int qcom_dot8_acc(uint w, uint x, int s) {
  const int4 p = convert_int4(as_char4(w)) * convert_int4(as_uchar4(x));
  return s + p.x + p.y + p.z + p.w;
}
"""
UNSIGNED = RIGHT.replace("as_char4", "as_uchar4")
MISSING = "int qcom_dot8_acc(uint w, uint x, int s);\n"


def test_plain_products_are_right(context: Context) -> None:
    assert gives_right_sums(context.handle, "", TEXT)


@pytest.mark.parametrize(("function", "found"), [(RIGHT, "qcom"), (UNSIGNED, ""), (MISSING, "")])
def test_an_instruction_must_build_and_be_right(
    function: str, found: str, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "dot.cl"
    file.write_text(function + TEXT)
    monkeypatch.setattr(dot_products, "FILE", file)
    assert dot_product(context.handle, ["cl_khr_fp16", "cl_qcom_dot_product8"]) == found
    assert dot_product(context.handle, ["cl_khr_fp16"]) == ""
