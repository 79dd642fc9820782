"""Makes the plans of a model for several input shapes share one packing of the weights, if this is nearly as fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

from imgconv.compiling.choose import ChoiceRequest, Chooser
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.template_interface import Choice

# A specialisation that reads known packings may take NEARLY times as long as the best one, or LAUNCH longer: seconds,
# about those of a launch.
NEARLY, LAUNCH = 1.25, 1e-5
# What packed weights depend on: output quads of a block, whether a buffer holds them, and whether four bytes share a
# uint.
PackingKey = tuple[int, bool, bool]
Packings = dict[Problem, set[PackingKey]]


@dataclass(frozen=True)
class SharedPackingChooser:
    """A chooser that prefers packings of a convolution's weights that are already in use.

    known: these packings, to which it adds the ones that it chooses. A measured choice is not changed.
    """

    otherwise: Chooser
    known: Packings

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        """The other chooser's choice, or one that takes little longer and reads a known packing."""
        best, problem = self.otherwise.choose_specialisation(request), request.problem
        if best is None or not isinstance(problem, Problem) or not isinstance(best.specialisation, Specialisation):
            return best
        packing = packing_key(best.specialisation)
        packings = self.known.setdefault(replace(problem, batch=1, input_size=(0, 0), output_size=(0, 0)), set())
        if packings and packing not in packings and best.seconds is None:
            times = {
                each: request.predicted(each)
                for each in request.template.candidates(problem, request.target) if packing_key(each) in packings
            }
            near = min(times, key=lambda each: times[each], default=None)
            most = best.predicted.most
            if near is not None and times[near].most <= max(NEARLY * most, most + LAUNCH):
                best, packing = replace(best, specialisation=near, predicted=times[near]), packing_key(near)
        packings.add(packing)
        return best


def packing_key(chosen: Specialisation) -> PackingKey:
    return chosen.block_quads, chosen.weights_in_buffer, chosen.integers
