"""Plans of one model for several shapes: one packing of the weights serves them all where it is nearly as fast."""

from __future__ import annotations

from dataclasses import replace

from imgconv.kernels.convolution import Problem, Specialisation
from imgconv.kernels.convolution_choice import candidates, predicted_cost
from imgconv.lower import Target

# A specialisation may cost so many times the best one, or so much more, to read weights that are already there: about
# what a launch costs, in nanoseconds of a CPU or cycles of a GPU.
NEARLY, LAUNCH = 1.25, 10_000.0
# What packed weights depend on: quads of a block, Winograd's outputs of a tile, whether they are a buffer.
Packing = tuple[int, int, bool]
Packings = dict[Problem, set[Packing]]


def sharing(target: Target, known: Packings) -> Target:
    """The target, whose convolutions are chosen with an eye on the packings that are known, and added to them.

    A measured choice is not changed.
    """

    def choose(problem: Problem, kind: str, compute_units: int) -> Specialisation:
        best = target.choose_convolution(problem, kind, compute_units)
        packings = known.setdefault(replace(problem, batch=1, input_size=(0, 0), output_size=(0, 0)), set())
        if packings and _packing(best) not in packings and target.measured(problem) is None:
            cost = {
                c: predicted_cost(problem, c, kind, compute_units)
                for c in (best, *candidates(problem, kind)) if c == best or _packing(c) in packings
            }
            near = min((c for c in cost if c != best), key=lambda c: cost[c], default=best)
            best = near if cost[near] <= max(NEARLY * cost[best], cost[best] + LAUNCH) else best
        packings.add(_packing(best))
        return best

    return replace(target, choose_convolution=choose)


def _packing(chosen: Specialisation) -> Packing:
    return chosen.block_quads, chosen.winograd, chosen.weights_in_buffer
