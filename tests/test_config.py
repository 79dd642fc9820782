"""Settings: arguments before environment before defaults, and every wrong value refused by name."""

from __future__ import annotations

import configparser
import dataclasses
import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest

import imgconv.config
from imgconv.config import Config, read_config
from imgconv.errors import ConfigError
from imgconv.model import Settings

NAMES = ("FLOAT16", "NATIVE_EXPLOG", "IMGCONV_MAX_IMAGE", "IMGCONV_DEVICE")


def test_nothing_set_gives_the_defaults() -> None:
    assert read_config(environment={}) == Config() == Config(0, False, None, None)


def test_empty_text_is_not_set() -> None:
    assert read_config(environment=dict.fromkeys(NAMES, "")) == Config()
    assert read_config(environment={"FLOAT16": " "}) == Config()


@pytest.mark.parametrize(
    "environment, changed",
    [
        ({"FLOAT16": "1"}, {"float16": 1}),
        ({"FLOAT16": "0"}, {}),
        ({"FLOAT16": "2"}, {"float16": 2}),
        ({"NATIVE_EXPLOG": "1"}, {"native_explog": True}),
        ({"NATIVE_EXPLOG": "0"}, {}),
        ({"IMGCONV_MAX_IMAGE": "256"}, {"max_image": 256}),
        ({"IMGCONV_MAX_IMAGE": "8"}, {"max_image": 8}),
        ({"IMGCONV_MAX_IMAGE": "0"}, {}),
        ({"IMGCONV_DEVICE": "Adreno"}, {"device": "Adreno"}),
        ({"IMGCONV_DEVICE": "1"}, {"device": "1"}),
        ({"PATH": "1", "float16": "1"}, {}),
    ],
)
def test_each_variable_sets_one_field(environment: dict[str, str], changed: dict[str, Any]) -> None:
    assert read_config(environment=environment) == dataclasses.replace(Config(), **changed)


def test_arguments_win_over_the_environment() -> None:
    environment = {"FLOAT16": "1", "NATIVE_EXPLOG": "1", "IMGCONV_MAX_IMAGE": "64", "IMGCONV_DEVICE": "gpu"}
    assert read_config(0, False, 32, "cpu", environment) == Config(0, False, 32, "cpu")
    assert read_config(environment=environment) == Config(1, True, 64, "gpu")


def test_a_given_argument_hides_a_wrong_variable() -> None:
    assert read_config(float16=1, environment={"FLOAT16": "half"}).float16 == 1


def test_arguments_are_normalised() -> None:
    config = read_config(float16=True, device=2, environment={})
    assert config == Config(float16=1, device="2")
    assert type(config.float16) is int and type(config.device) is str


@pytest.mark.parametrize(
    "environment",
    [
        {"FLOAT16": "3"}, {"FLOAT16": "-1"}, {"FLOAT16": "yes"}, {"FLOAT16": "1.0"}, {"NATIVE_EXPLOG": "2"},
        {"NATIVE_EXPLOG": "on"}, {"IMGCONV_MAX_IMAGE": "7"}, {"IMGCONV_MAX_IMAGE": "-5"}, {"IMGCONV_MAX_IMAGE": "big"},
    ],
)
def test_a_wrong_variable_is_named_with_its_value(environment: dict[str, str]) -> None:
    ((name, value),) = environment.items()
    with pytest.raises(ConfigError) as raised:
        read_config(environment=environment)
    assert name in str(raised.value) and value in str(raised.value)


@pytest.mark.parametrize("arguments", [{"float16": 3}, {"float16": -1}, {"max_image": 0}, {"max_image": 7}])
def test_a_wrong_argument_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_config(**arguments, environment={})


def test_the_process_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    assert read_config() == Config()
    monkeypatch.setenv("FLOAT16", "1")
    assert read_config().float16 == 1
    monkeypatch.setenv("FLOAT16", "0")
    assert read_config().float16 == 0
    assert os.environ["FLOAT16"] == "0"


def test_a_config_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().float16 = 1  # type: ignore[misc]


def test_only_config_reads_these_variables() -> None:
    folder = Path(imgconv.config.__file__).parent
    for path in folder.rglob("*.py"):
        if path.name != "config.py":
            text = path.read_text(encoding="utf-8")
            found = re.findall(rf"""environ\S*["']({'|'.join(NAMES)})["']|getenv\(["']({'|'.join(NAMES)})""", text)
            assert not found, path.name


def test_settings_are_the_arguments_of_load() -> None:
    arguments = [name for name in inspect.signature(imgconv.load).parameters if name not in ("model", "workspace")]
    assert arguments == [field.name for field in dataclasses.fields(Settings)]


def test_the_package_is_typed() -> None:
    """py.typed stands beside __init__.py, and setup.cfg puts it into the wheel."""
    assert Path(imgconv.__file__).with_name("py.typed").exists()
    setup = configparser.ConfigParser()
    setup.read(Path(imgconv.__file__).parents[1] / "setup.cfg")
    assert "py.typed" in setup["options.package_data"]["imgconv"].split(", ")
