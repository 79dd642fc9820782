"""The player's check of launches: nothing is reported on right drivers; wrong launches are replaced, or named."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_driver
import numpy
import pytest
from faulty_driver.matrix import CHANGED, NAMES, REAL_CASES, real_model, small_models
from faulty_driver.outcomes import Case, Outcome, outcomes_of
from faulty_driver.test_check import AT_LOAD, LOST, REAL_SWAPS, SWAPS, under_swaps
from graphs import assert_near, const, numbers
from operator_cases import Case as OperatorCase
from operator_cases import model_of
from played import Play, assert_same_bits, drawn
from published import needs_models
from test_levels import in_bytes, layers
from test_operators_on_device import FAMILIES, first_cases

import imgconv
from imgconv import cli
from imgconv.build_options import BuildOptions
from imgconv.checking.alternatives import ALTERNATIVES
from imgconv.checking.player_checks import random_content, with_checks
from imgconv.cl.device import DeviceInfo
from imgconv.config import Config
from imgconv.dtype import FLOAT16, FLOAT32
from imgconv.errors import Error
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import HostBuffer, ImageLimits, Texture, choose_tiling, image_layout
from imgconv.loading.plans import prepare_for
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.device_target import target_of
from imgconv.onnx_import import import_onnx
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model
from imgconv.stored.tuning import TuningDatabase
from imgconv.tensor import Tensor, build_graph

ADRENO = faulty_driver.ROOT / "imgconv" / "loading" / "devices" / "adreno_640.json"
# Of SWAPS, those that are in texts of templates only, so that generated kernels replace them.
REPLACED = ("a shifted column", "a shifted row", "one lane for all", "a loop that ends early")

# Families of operators whose kernels with other specialisations are those of further families, too.
REPEATED = ("double", "fourier", "multi head", "packed", "QAttention", "quantised recurrent")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """The small models, compiled for an Adreno."""
    folder, made = tmp_path_factory.mktemp("models"), {}
    for name, case in small_models(folder).items():
        imgconv.load(case.model).save(folder / f"{name}.imgconv", targets=[ADRENO])
        made[name] = replace(case, model=str(folder / f"{name}.imgconv"), player=True)
    return made


@pytest.fixture(scope="module")
def library(environment: dict[str, str]) -> dict[str, str]:
    """The player's variables that the faulty driver's environment does not set."""
    return {name: environment[name] for name in ("LD_LIBRARY_PATH", "IMGCONV_LIBRARY")}


# Drivers that are right


def saved(case: OperatorCase, device: DeviceInfo, float16: int, path: Path) -> bool:
    """Compiles a case's model into a file. Returns whether the player reads it."""
    model, _ = model_of(case)
    try:
        loaded = imgconv.load(model, device=device, float16=float16)
        loaded.save(path)
    except Error:
        return False
    return not SavedModel.open(path).refused_by_player


@pytest.mark.parametrize(("family", "float16"), [(family, number % 2) for number, family in enumerate(FAMILIES)])
def test_nothing_is_reported(family: str, float16: int, device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    paths = []
    for number, case in enumerate(first_cases(FAMILIES[family])[::2]):
        if saved(case, device, float16, tmp_path / f"{number} {case.op_type}"):
            paths.append(str(tmp_path / f"{number} {case.op_type}"))
    lines = f"""
        lines = []
        for path in {paths}:
            model = Player(path, "{device.index}")
            lines += [f"{{path}}: {{each}}" for each in model.check()["launches"] if each["verdict"] == "wrong"]
            model.close()
        results["lines"] = numpy.array(lines, dtype=str)
    """
    assert not list(play(lines)["lines"])


def with_alternatives(case: OperatorCase) -> Iterator[tuple[Graph, DevicePlan]]:
    """A case's graph and its plans for an Adreno, in each of which other specialisations take the launches' place."""
    model, _ = model_of(case)
    info = read_device_description(ADRENO)
    try:
        prepared = prepare_for(info, import_onnx(model, {}, {}), Config())
        made = with_checks(DevicePlan(prepared.plan(), info.key, prepared.target), prepared.graph, Config(), {})
    except Error:
        return
    for turn in range(ALTERNATIVES):
        checks = [each for each in made.checks.launches if turn < len(each.alternatives)]
        others = {each.launch: each.alternatives[turn] for each in checks}
        launches = tuple(others.get(number, launch) for number, launch in enumerate(made.plan.launches))
        if others:
            yield prepared.graph, replace(made, plan=replace(made.plan, launches=launches))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in REPEATED])
def test_other_specialisations_are_right(family: str, play: Play, tmp_path: Path) -> None:
    paths = []
    for number, case in enumerate(first_cases(FAMILIES[family])[:2]):
        for turn, (graph, made) in enumerate(with_alternatives(case)):
            path = str(tmp_path / f"{number} {turn} {case.op_type}")
            save_model(path, graph, Config(), [made])
            if not SavedModel.open(path).refused_by_player:
                paths.append(path)
    if not paths:
        pytest.skip("no launch of these operators has another specialisation")
    lines = f"""
        lines = []
        for path in {paths}:
            model = Player(path, check=False)
            lines += [f"{{path}}: {{each}}" for each in model.check()["launches"] if each["verdict"] != "right"]
            model.close()
        results["lines"] = numpy.array(lines, dtype=str)
    """
    assert not list(play(lines, **faulty_driver.variables("adreno", tmp_path))["lines"])


def test_a_file_without_checks(device: DeviceInfo, play: Play, models: dict[str, Case], tmp_path: Path) -> None:
    """A file of an older version gives the same bits, and no launch of it is covered."""
    model = imgconv.load(models["convolutions"].model, device=device)
    model.save(tmp_path / "new")
    save_model(
        tmp_path / "old", model._last.graph, model.config, [DevicePlan(model.plan, device.key, target_of(device))]
    )
    lines = f"""
        for name in ("new", "old"):
            model = Player({str(tmp_path)!r} + "/" + name, "{device.index}")
            results.update({{f"{{name}} {{n}}": array for n, array in model.run(given).items()}})
            found = [each["verdict"] for each in model.check()["launches"]]
            assert set(found) == {{"not covered" if name == "old" else "right"}}, found
    """
    inputs = drawn(model)
    expected = {f"{n} {name}": array for n in ("new", "old") for name, array in model.run(inputs).items()}
    assert_same_bits(play(lines, inputs), expected)


def test_bytes_of_levels(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """In images, levels of a quantised network are bytes: they are checked as such, and give the same bits."""
    made, inputs = layers("uint8", 153)
    model = imgconv.load(made, device=device, max_image=64)
    expected = model.run(inputs)
    assert in_bytes(model.plan)
    model.save(tmp_path / "m")
    lines = f"""
        model = Player({str(tmp_path / "m")!r}, "{device.index}")
        results.update(model.run(given))
        found = [each["verdict"] for each in model.check()["launches"]]
        assert set(found) <= {{"right", "not covered"}} and found.count("right") > 8, found
    """
    assert_same_bits(play(lines, inputs), expected)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16])
def test_drawn_numbers(dtype: Any) -> None:
    """Two storages differ, positive and whole numbers are so, and what holds no element is zero, in tiles too."""
    tiling = choose_tiling(14, 5, ImageLimits(4, 8, 4), "x", (1, 6, 5, 7))
    texture = Texture("x", (1, 6, 5, 7), image_layout(4), dtype, tiling)
    first, second = (random_content(texture, number) for number in (1, 2))
    assert tiling.layers > 1 and first.dtype == dtype.dtype and (first != second).any()
    inside = texture.layout.unpack(tiling.from_image(first), texture.shape)
    assert numpy.count_nonzero(first) == numpy.count_nonzero(inside) > 200 and -1 <= first.min() < -0.9
    assert set(numpy.unique(random_content(texture, 1, whole=True))) == {0, 1}
    buffer = random_content(HostBuffer("x", (50,), image_layout(1), dtype), 3, positive=True)
    assert buffer.min() > 0 and 0.9 < buffer.max() <= 1


# Drivers that are wrong


def problem(made: Outcome) -> str:
    """Says what is wrong with the outcome of a model some of whose kernels are wrong; a wrong one is named."""
    if made.result == "right":
        return ""
    is_named = made.message.startswith("WRONG: launch '") and "kernel " in made.message and "Adreno" in made.message
    return "" if made.stage == "load" and is_named else str(made)


def outcomes(
    case: Case, swaps: Sequence[str], folder: Path, library: dict[str, str], check: bool, seconds: float = 1800
) -> list[Outcome]:
    """The outcomes under each swap. check: whether opening checks the launches."""
    folder.mkdir()
    cases = [replace(each, settings={"check": check}) for each in under_swaps(case, swaps, folder)]
    found, status = outcomes_of(cases, folder, library, seconds)
    assert len(found) == len(swaps) and status == 0
    return found


@pytest.mark.parametrize("name", NAMES)
def test_wrong_kernels_are_found(models: dict[str, Case], name: str, library: dict[str, str], tmp_path: Path) -> None:
    """Unchecked each swap gives wrong outputs; checked, those of templates are replaced, others are named."""
    swaps = {what: SWAPS[name][what] for what in AT_LOAD[name]}
    unchecked = outcomes(models[name], list(swaps.values()), tmp_path / "unchecked", library, check=False)
    assert [made.result for made in unchecked] == ["wrong"] * len(swaps)
    found = outcomes(models[name], list(swaps.values()), tmp_path / "checked", library, check=True)
    assert not any(map(problem, found)), found
    replaced = [what for what, made in zip(swaps, found, strict=True) if made.result == "right"]
    assert set(replaced) >= set(REPLACED) & swaps.keys()


@pytest.mark.parametrize("name", NAMES)
def test_lost_launches_are_found(models: dict[str, Case], name: str, library: dict[str, str], tmp_path: Path) -> None:
    """Every Nth launch is lost, with N less than the launches of a run."""
    cases = [replace(models[name], at_load=f"adreno;{each}", in_runs=f"adreno;{each}") for each in LOST]
    found, status = outcomes_of(cases, tmp_path, library)
    for made in found:
        assert not problem(made) and "Repeated, it is right" in made.message and "loses launches" in made.message
    assert len(found) == len(LOST) and status == 0


def test_outcomes_are_kept(models: dict[str, Case], library: dict[str, str], tmp_path: Path) -> None:
    """A later open checks nothing: what is wrong since then stays so, and what was replaced stays replaced."""
    swap = f"adreno;binary=empty;swap={SWAPS['convolutions'][REPLACED[0]]}"  # the programs are built again
    case, right = models["convolutions"], "adreno;binary=empty"
    kept, other = tmp_path / "kept", tmp_path / "other"
    kept.mkdir(), other.mkdir()
    cases = [
        replace(case, at_load=faults, in_runs=faults, cache=str(cache))
        for faults, cache in ((right, kept), (swap, kept), (swap, other), (swap, other))
    ]
    found, status = outcomes_of(cases, tmp_path, library)
    assert [made.result for made in found] == ["right", "wrong", "right", "right"] and status == 0
    assert len([path for path in other.glob("*.program") if re.search(rb"checked .*\d:\d", path.read_bytes())]) == 1


# Wrong in every kernel with such a function, unless it is built without optimisation.
WITHOUT_OPTIMISATION = "1.0f + exp_of(=>1.0f + 0.0078125f * OPTIMISED + exp_of("


@pytest.mark.parametrize("name", NAMES)
def test_a_build_without_optimisation(
    models: dict[str, Case], name: str, library: dict[str, str], tmp_path: Path
) -> None:
    """The last remedy, for generated kernels and templates."""
    swaps = [WITHOUT_OPTIMISATION]
    (unchecked,) = outcomes(models[name], swaps, tmp_path / "unchecked", library, check=False)
    (found,) = outcomes(models[name], swaps, tmp_path / "checked", library, check=True)
    assert (unchecked.result, found.result) == ("wrong", "right"), found


def opened(lines: str, faults: str, cache: Path, play: Play, given: dict[str, Any]) -> dict[str, numpy.ndarray]:
    """Results of a process on the faulty driver, and the form of each launch."""
    lines += """
results["forms"] = numpy.array([each["form"] for each in model.check()["launches"]])
results |= model.run(given)
"""
    return play(lines, given, **faulty_driver.variables(faults, cache))


def test_another_specialisation_in_place_of_a_wrong_kernel(
    models: dict[str, Case], play: Play, tmp_path: Path
) -> None:
    """Kernels with a constant of one specialisation write nothing; the next one has another constant."""
    case = models["convolutions"]
    plan = SavedModel.open(case.model).table.plans[0]
    check = next(each for each in plan.checks if len(each.alternatives))
    own = plan.kernels[plan.launches[check.launch].kernel].text.splitlines()
    other = plan.spare_kernels[check.alternatives[0].kernel - len(plan.kernels)].text.splitlines()
    line = next(each for each in own if each.startswith("#define BLOCK_") and each not in other)
    with numpy.load(case.numbers) as file:
        given, expected = {"x": file["in:x"]}, file["out:map"]
    swap = f"swap={line}\n=>{line}\n#define write_imagef(image, at, texel) ((void)0)\n"
    found = opened(f"model = Player({case.model!r})", f"adreno;{swap}", tmp_path, play, given)
    assert found["forms"][check.launch] == "another specialisation"
    assert numpy.abs(found["map"] - expected).max() <= case.tolerance


def test_tuning_is_kept(models: dict[str, Case], play: Play, tmp_path: Path) -> None:
    """Tuning replaces a plan's slow kernels, and later opens use the replacements without building any."""
    case, cache = models["convolutions"], tmp_path / "cache"
    cache.mkdir()
    with numpy.load(case.numbers) as file:
        given = {"x": file["in:x"]}

    def forms_of(faults: str, tune: int) -> dict[str, numpy.ndarray]:
        lines = f"model = Player({case.model!r}, cache={str(cache)!r}, tune={tune})"
        return opened(lines, f"adreno;{faults}", cache, play, given)

    own = forms_of("", 0)
    tuned = forms_of("binary=refuse;slow=0.002:#define NAME k0", 600_000)
    kept = forms_of("fail=clCreateProgramWithSource:-6", 600_000)
    assert set(own["forms"]) == {"own"} and "another specialisation" in tuned["forms"]
    assert list(kept["forms"]) == list(tuned["forms"])
    assert not [line for line in faulty_driver.met(cache) if "clCreateProgramWithSource" in line]
    for name in ("y", "map"):  # sums of Adreno's specialisations may be shared by different numbers of work items
        assert numpy.abs(tuned[name] - own[name]).max() <= 1e-5 * numpy.abs(own[name]).max()
        assert_same_bits({name: kept[name]}, {name: tuned[name]})


def file_with(options: BuildOptions | None, folder: Path, driver: str = "") -> tuple[Path, dict[str, Any], Any]:
    """A small model for the Adreno, or for another driver of it, with measured options; its inputs and its output."""
    adreno, x = read_device_description(ADRENO), Tensor.input("x", (1, 4, 8, 8))
    adreno = replace(adreno, driver_version=driver or adreno.driver_version)
    database = TuningDatabase(folder / "tuning", new=True)
    if options:
        database.record_build_options(adreno.key, Config(), options)
    graph = build_graph({"map": x.conv2d(const(4, 4, 1, 1)).softmax(1)}, [x])
    imgconv.load(graph, tuning=database.path).save(folder / "m.imgconv", targets=[adreno])
    given = {"x": numbers(1, 4, 8, 8)}
    return folder / "m.imgconv", given, evaluate_graph(graph, given)["map"]


def test_build_options_are_tuned_and_kept(play: Play, tmp_path: Path) -> None:
    """Kernels without half waves are slow, those with full waves wrong, and the driver refuses a flag."""
    path, given, expected = file_with(None, tmp_path)
    full, half = (f'qcom_reqd_sub_group_size("{size}")' for size in ("full", "half"))
    swap = f"swap={full})) __kernel=>{full})) __kernel\n#define write_imagef(image, at, texel) ((void)0)"
    faults = f"adreno;slow=0.002:!{half};build_fail=0:-qcom-accelerate-16-bit=true;{swap}"
    lines = f"""
model = Player({str(path)!r}, cache={str(tmp_path)!r}, tune=600_000)
results["options"] = numpy.array(model.check()["build_options"])
"""
    tuned = opened(lines, faults, tmp_path, play, given)
    kept = opened(lines, "adreno;fail=clCreateProgramWithSource:-6", tmp_path, play, given)
    assert str(tuned["options"]).startswith("half waves") and kept["options"] == tuned["options"]
    assert_near(kept["map"], expected)


ATTRIBUTE = 'size("half"))) __kernel'
WRONG_WITH_HALF_WAVES = f"swap={ATTRIBUTE}=>{ATTRIBUTE}\n#define write_imagef(image, at, texel) ((void)0)"


@pytest.mark.parametrize(("fault", "driver"), [
    ("", ""), ("build_fail=0:-qcom-accelerate-16-bit", ""), (WRONG_WITH_HALF_WAVES, ""), ("", "other"),
])
def test_build_options_of_the_file(fault: str, driver: str, play: Play, tmp_path: Path) -> None:
    """They are used with the driver with which they were measured, unless it refuses them or is wrong."""
    path, given, expected = file_with(BuildOptions("half", "off", True), tmp_path, driver)
    lines = f"model = Player({str(path)!r}, cache={str(tmp_path)!r})"
    found = opened(lines, f"adreno;options=log;{fault}", tmp_path, play, given)
    assert_near(found["map"], expected)
    made = [line.partition(", ")[2] for line in faulty_driver.builds(tmp_path)]
    if fault:
        assert made[-1] == "options -w, waves any"
    elif driver:
        assert set(made) == {"options -w, waves any"}
    else:
        assert made and set(made) == {"options -w -qcom-accelerate-16-bit=false, waves half"}


def test_another_plan_in_place_of_a_wrong_one(
    models: dict[str, Case], library: dict[str, str], tmp_path: Path
) -> None:
    """Kernels that write images write nothing; those of the file's plan for a CPU write memory."""
    adreno = read_device_description(ADRENO)
    cpu = replace(adreno, kind="cpu", image_row_alignment=0, driver_version="small")
    imgconv.load(models["convolutions"].model).save(tmp_path / "two.imgconv", targets=[adreno, cpu])
    swap = SWAPS["convolutions"]["an output that is not written"]
    case = replace(models["convolutions"], model=str(tmp_path / "two.imgconv"))
    (found,) = outcomes(case, [swap], tmp_path / "caches", library, check=True)
    assert found.result == "right", found


def test_every_form_of_kernel(built: Path, library: dict[str, str], tmp_path: Path) -> None:
    """`imgconv check --save` writes a file by which a device without Python is tried: each kernel variant."""
    file = tmp_path / "forms.imgconv"
    assert cli.main(["check", "--save", str(file), "--target", str(ADRENO)]) == 0
    command = [built / "imgconv-run", file, "--check"]
    known = faulty_driver.environment("adreno", tmp_path) | library
    done = subprocess.run(command, env=known, capture_output=True, text=True)
    verdicts = {each["verdict"] for each in json.loads(done.stdout)["launches"]}
    assert done.returncode == 0 and verdicts == {"right"}, done.stderr


def test_the_command(models: dict[str, Case], built: Path, library: dict[str, str], tmp_path: Path) -> None:
    """`imgconv-run --check` says which launches are wrong, and nothing is replaced then."""
    swap = f"adreno;swap={SWAPS['convolutions'][REPLACED[3]]}"
    for faults, status in ("adreno", 0), (swap, 1):
        known = faulty_driver.environment(faults, tmp_path) | library
        command = [built / "imgconv-run", models["convolutions"].model, "--check"]
        done = subprocess.run(command, env=known, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        wrong = [each for each in json.loads(done.stdout)["launches"] if each["verdict"] == "wrong"]
        assert bool(wrong) == bool(status) and all("conv" in each["kernel"] and each["text"] for each in wrong)


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("path", REAL_CASES)
def test_files_grow_by_a_tenth_at_most(path: str, tmp_path: Path) -> None:
    """By right values, plain forms and other specialisations."""
    prepared = prepare_for(read_device_description("generic"), import_onnx(real_model(path).model, {}, {}), Config())
    plain = DevicePlan(prepared.plan(), "generic", prepared.target)
    for name, made in {"plain": plain, "checked": with_checks(plain, prepared.graph, Config(), {})}.items():
        save_model(tmp_path / name, prepared.graph, Config(), [made])
    before, after = ((tmp_path / name).stat().st_size for name in ("plain", "checked"))
    assert after <= 1.1 * before


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("path", CHANGED)
def test_real_models(path: str, library: dict[str, str], tmp_path: Path) -> None:
    case = real_model(path)
    imgconv.load(case.model).save(tmp_path / "m.imgconv", targets=[ADRENO])
    case = replace(case, model=str(tmp_path / "m.imgconv"), player=True)
    found = outcomes(case, REAL_SWAPS, tmp_path / "caches", library, check=True, seconds=3600)
    assert not any(map(problem, found)), found
