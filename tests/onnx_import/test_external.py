"""External data: only regular files in the model's folder are read, and only as far as the tensor goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from support import assert_close, model_with, run_model

from imgconv.errors import ModelError

W = numpy.arange(8, dtype=numpy.float32)


def saved(folder: Path, entries: dict[str, str], name: str = "weights.bin") -> Path:
    """y = x + w, with w in another file, behind 16 bytes of something else."""
    folder.mkdir(exist_ok=True)
    model = model_with([8], [onnx.helper.make_node("Add", ["x", "w"], ["y"])])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[8], data_location=1)
    for key, value in {"location": name, "offset": "16", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(bytes(16) + W.tobytes())
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("entries", [{}, {"length": "32"}, {"checksum": "unused"}])
def test_content(entries: dict[str, str], tmp_path: Path) -> None:
    found = run_model(saved(tmp_path, entries), {"x": W})
    assert_close(found, {"y": W + W}, 0)


@pytest.mark.parametrize("entries", [
    {"offset": "-8"}, {"offset": "abc"}, {"offset": "1e3"}, {"offset": str(2**70)}, {"length": "x"}, {"length": "-1"},
    {"length": str(2**62)},
])
def test_numbers_that_are_none(entries: dict[str, str], tmp_path: Path) -> None:
    (key, value), = entries.items()
    with pytest.raises(ModelError, match=f"tensor 'w' has {key} '{value}', which is not a valid number"):
        run_model(saved(tmp_path, entries), {"x": W})


@pytest.mark.parametrize("entries", [{"offset": "20"}, {"length": "40"}, {"offset": str(10**17)}])
def test_past_the_end(entries: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="it has 48 bytes, not the .* bytes at .* that the tensor takes"):
        run_model(saved(tmp_path, entries), {"x": W})


@pytest.mark.parametrize("length", ["16", "8", "31"])
def test_a_length_that_is_not_the_tensors(length: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the content of tensor 'w' does not fit its shape"):
        run_model(saved(tmp_path, {"length": length}), {"x": W})


def link_out(folder: Path) -> None:
    (folder / "other").symlink_to(folder.parent / "secret")


def folder_out(folder: Path) -> None:
    (folder / "sub").symlink_to(folder.parent)


PLACES: dict[str, tuple[str, Any, str]] = {
    "above": ("../secret", None, "outside of the model's folder"),
    "absolute": ("/etc/passwd", None, "outside of the model's folder"),
    "the folder itself": ("", None, "outside of the model's folder"),
    "a link out": ("other", link_out, "outside of the model's folder"),
    "a folder's link out": ("sub/secret", folder_out, "outside of the model's folder"),
    "a device": ("other", lambda f: (f / "other").symlink_to("/dev/zero"), "outside of the model's folder"),
    "a pipe": ("other", lambda f: os.mkfifo(f / "other"), "not a regular file"),
    "a folder": ("other", lambda f: (f / "other").mkdir(), "not a regular file|Is a directory"),
    "a zero byte": ("a\0b", None, "null"),
    "nothing": ("nothing.bin", None, "No such file"),
}


@pytest.mark.parametrize("place", PLACES)
def test_places_that_are_not_read(place: str, tmp_path: Path) -> None:
    name, make, message = PLACES[place]
    (tmp_path / "secret").write_bytes(bytes(48))
    path = saved(tmp_path / "model", {}, name)
    if make:
        make(path.parent)
    with pytest.raises(ModelError, match=f"tensor 'w' is in the external file .*{message}") as caught:
        run_model(path, {"x": W})
    assert caught.value.file == str(path)


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    path = saved(tmp_path, {}, "other")
    (tmp_path / "other").symlink_to("weights.bin")
    assert_close(run_model(path, {"x": W}), {"y": W + W}, 0)
