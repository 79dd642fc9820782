"""Every .cl file of the package compiles as it stands, with the defaults of its constants."""

from __future__ import annotations

import pytest
from driver_times import INCLUDING

from imgconv.cl.context import Context
from imgconv.cl.building.program import build
from imgconv.kernels.specialise import FOLDER, template_files


@pytest.mark.parametrize("file", sorted(template_files()))
def test_a_file_compiles_alone(context: Context, file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    build(context, text, file, INCLUDING)
