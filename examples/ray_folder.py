"""A folder of pictures to Parquet files, on all machines of a Ray cluster or all cores and GPUs of this one.

    python -m examples.ray_folder MODEL FOLDER RESULTS [--workers N] [--gpus 1] [--resource adreno=1]

A row has the picture's path, what the model says of it as JSON, and an error if it cannot be read. A worker that is
lost is started again, and its rows are computed again. If the whole run breaks off, the same command goes on: pictures
that have a row are left out. FOLDER and RESULTS are seen by all machines. Needs pip install 'imgconv[onnx,ray]'.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import imgconv
from imgconv.batch import Predictor

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="A folder of pictures to Parquet files, with Ray.")
    parser.add_argument("model", help="an ONNX file, or one of imgconv compile")
    parser.add_argument("folder")
    parser.add_argument("results", help="the folder of the Parquet files")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with the model (default: 1)")
    parser.add_argument("--rows", type=int, default=16, help="pictures that a worker is given at once (default: 16)")
    parser.add_argument("--gpus", type=float, default=0, help="NVIDIA GPUs of each worker, as Ray counts them")
    parser.add_argument("--resource", metavar="NAME=COUNT", help="what else each worker takes of a machine's resources")
    options = parser.parse_args()
    name, _, count = (options.resource or "").partition("=")
    try:
        print(run(
            options.model, options.folder, options.results, options.workers, options.rows, options.gpus,
            {name: float(count)} if name else {},
        ))
    except imgconv.Error as error:
        print(f"ray_folder: {error}", file=sys.stderr)
        return 1
    return 0


def run(
    model: str, folder: str, results: str, workers: int = 1, rows: int = 16, gpus: float = 0,
    resources: Mapping[str, float] | None = None, predictor: type[Predictor] = Predictor,
) -> str:
    """Computes what has no row yet; returns how many pictures have one in all. Raises MissingPackageError."""
    try:
        import ray.data
    except ModuleNotFoundError as error:
        raise imgconv.MissingPackageError("ray", "ray", "examples.ray_folder") from error
    paths = sorted(str(path) for path in Path(folder).resolve().rglob("*") if path.suffix.lower() in SUFFIXES)
    done = set(rows_of(results)["path"])
    waiting = [{"path": path} for path in paths if path not in done]
    if done:
        print(f"{len(paths) - len(waiting)} of {len(paths)} pictures are done already")
    if waiting:
        read = ray.data.from_items(waiting, override_num_blocks=-(-len(waiting) // rows)).map(with_bytes)
        answers = read.map_batches(
            predictor, fn_constructor_args=(str(Path(model).resolve()),), batch_size=rows, num_gpus=gpus or None,
            compute=ray.data.ActorPoolStrategy(size=workers), **({"resources": resources} if resources else {}),
        )
        answers.write_parquet(str(Path(results).resolve()))
    table = rows_of(results)
    bad = sum(bool(error) for error in table["error"])
    return f"{len(set(table['path']))} pictures done, {bad} of them with an error"


def with_bytes(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the bytes of its file; without any if it cannot be read, which the model's row will say."""
    try:
        return {**row, "bytes": Path(row["path"]).read_bytes()}
    except OSError:
        return {**row, "bytes": b""}


def rows_of(results: str) -> dict[str, list[str]]:
    """Paths and errors of all rows. A file that was broken off is deleted: its pictures are computed again."""
    import pyarrow
    import pyarrow.parquet

    found: dict[str, list[str]] = {"path": [], "error": []}
    for file in sorted(Path(results).glob("*.parquet")):
        try:
            table = pyarrow.parquet.read_table(file, columns=[*found])
        except (pyarrow.ArrowInvalid, OSError):
            file.unlink()
            continue
        for name, rows in found.items():
            rows += table[name].to_pylist()
    return found


if __name__ == "__main__":
    sys.exit(main())
