"""Templates of one's own: which of several takes a node, and what is launched in its place. No device is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import image, target

from imgconv.compiling import place as placing
from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.config import Config
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Graph, Load, Node
from imgconv.kernels.codegen.access import KernelArgument
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.template_interface import (
    EmittingContext, FixedProblem, LaunchStep, PlacingContext, fixed_template, nodes_with, step_of
)
from imgconv.tensor import build_graph

FILE = "kernels/toy/toy.cl"


def place(asked: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[FixedProblem, str] | None:
    """The Step of a square root and nothing else. Its details: what is computed, as text."""
    (node,) = given
    if function_names(node.epilogue) != ("sqrt",):
        return None
    return step_of(asked, node, asked.place_value(node.output), TEMPLATE, FixedProblem(node.output.name), "sqrt")


def kernel(step: LaunchStep[FixedProblem, str], emitting: EmittingContext) -> KernelSource:
    arguments = (
        KernelArgument("output", step.output.storage, written=True),
        *(KernelArgument("input", each.storage) for each in step.places.values()),
    )
    return KernelSource(f"kernel void NAME() {{ {step.details} }}", FILE, arguments, (1,), None)


TEMPLATE = fixed_template("toy", FILE, nodes_with(Load), place, kernel)


def layers() -> Graph:
    """A pooling, its square root, the pooling of that and an exponential."""
    x = image(1, 8, 20, 20).max_pool(3, 1, 1)
    return build_graph({"y": x.sqrt().named("root").max_pool(3, 1, 1).exp()})


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> PreparedGraph:
    monkeypatch.setattr(placing, "TEMPLATES", (TEMPLATE, *placing.TEMPLATES))
    monkeypatch.setattr("imgconv.compiling.compiler.run_passes", lambda graph: graph)
    return prepare(layers(), Config(), target())


def test_a_template_takes_its_nodes_and_leaves_the_others(prepared: PreparedGraph) -> None:
    launches = prepared.plan().launches
    assert [launch.name for launch in launches if launch.source.path == FILE] == ["root"]
    (own,) = (launch for launch in launches if launch.source.path == FILE)
    assert own.choice and own.choice.template == "toy" and own.specialisation == "" and own.rejected is None


def test_an_output_that_a_template_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own launch and the one that may take its place write to one texture, from which the output is unpacked."""
    monkeypatch.setattr(placing, "TEMPLATES", (TEMPLATE, *placing.TEMPLATES))
    monkeypatch.setattr("imgconv.compiling.compiler.run_passes", lambda graph: graph)
    prepared = prepare(build_graph({"y": image(1, 8, 20, 20).max_pool(3, 1, 1).sqrt()}), Config(), target())
    plan = prepared.plan()
    (own,) = (launch for launch in plan.launches if launch.source.path == FILE)
    for each in (plan, replace(prepared, refused=frozenset({own.source.key})).plan()):
        *_, compute, unpack = each.launches
        assert unpack.writes == each.output_buffers["y"] and compute.writes in unpack.reads


def test_a_kernel_that_the_driver_refuses_has_another_in_its_place(prepared: PreparedGraph) -> None:
    plan = prepared.plan()
    (own,) = (launch for launch in plan.launches if launch.source.path == FILE)
    other = replace(prepared, refused=frozenset({own.source.key})).plan()
    assert [launch.name for launch in other.launches] == [launch.name for launch in plan.launches]
    (instead,) = (launch for launch in other.launches if launch.name == own.name)
    assert instead.source.path == "generated" and instead.rejected and instead.rejected.template == "toy"


def test_what_no_other_template_computes_stays_refused(prepared: PreparedGraph) -> None:
    plan = prepared.plan()
    refused = frozenset(launch.source.key for launch in plan.launches if launch.source.path == "generated")
    other = replace(prepared, refused=refused).plan()
    assert [launch.source.path for launch in other.launches].count(FILE) == 1
    assert [launch.name for launch in other.launches] == [launch.name for launch in plan.launches]
