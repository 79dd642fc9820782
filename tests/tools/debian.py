"""Unpacks Debian packages of another suite or architecture, with what they depend on; nothing is installed.

    python -m tests.tools.debian FOLDER SUITE ARCHITECTURE PACKAGE...
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path


def unpack(folder: Path, suite: str, architecture: str, packages: Sequence[str]) -> None:
    """Puts the packages' files into `folder`, by an apt of its own, beside it, that knows no installed package."""
    state = folder.with_name(folder.name + "-apt").resolve()
    for each in ("lists/partial", "cache/archives/partial"):
        (state / each).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb http://deb.debian.org/debian {suite} main\n")
    settings = {
        "Dir::State": state, "Dir::State::lists": state / "lists", "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache", "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "-",
        "APT::Architecture": architecture, "APT::Architectures::": architecture, "Debug::NoLocking": "1",
    }
    options = [text for name, value in settings.items() for text in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", *options, "-qq", "update"], check=True)
    install = "-qq", "-y", "--no-install-recommends", "--download-only", "install"
    subprocess.run(["apt-get", *options, *install, *packages], check=True)
    for package in sorted((state / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Unpack Debian packages into a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("suite")
    parser.add_argument("architecture")
    parser.add_argument("packages", nargs="+", metavar="package")
    given = parser.parse_args()
    unpack(given.folder, given.suite, given.architecture, given.packages)
