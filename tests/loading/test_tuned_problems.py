"""The problems of a graph that are measured, without a device."""

from __future__ import annotations

from graphs import const

from benchmarks.adreno import target_for
from imgconv.compiling.compiler import prepare
from imgconv.config import Config
from imgconv.kernels.device_model.adreno import A630
from imgconv.kernels.squeeze_excite import template as squeeze_excite
from imgconv.loading.tuner import prepare_copies, problems_of, ranked_candidates
from imgconv.tensor import Tensor, build_graph


def test_copies_of_a_squeeze_whose_pooling_is_a_launch_of_its_own() -> None:
    """Candidates side by side are launches of the problem, although the pooling before them is not measured."""
    x = Tensor.input("x", (1, 32, 112, 112))
    hidden = x.mean([2, 3], keepdims=True).conv2d(const(8, 32, 1, 1)).relu()
    prepared = prepare(build_graph({"y": x * hidden.conv2d(const(32, 8, 1, 1)).sigmoid()}), Config(), target_for(A630))
    ((problem, nodes),) = problems_of(prepared).items()
    assert isinstance(problem, squeeze_excite.Problem) and problem.map_size == (1, 1)
    choices = ranked_candidates(problem, prepared.target)
    launches = prepare_copies(prepared, nodes, choices).plan().launches
    made = [launch.choice for launch in launches if launch.specialisation]
    assert [(choice.problem, choice.specialisation) for choice in made] == [(problem, each) for each in choices]
