"""A plan in half with floats in place of the halves, by the same kernels."""

from __future__ import annotations

from dataclasses import replace

from imgconv.compiling.plan import Launch, Plan, Region, Storage
from imgconv.dtype import FLOAT16, FLOAT32
from imgconv.kernels.layout import Placement, Texture


def widened(plan: Plan) -> Plan | None:
    """The plan of float16=1 with its values in textures of float. Weights stay in half.

    Its kernels are the plan's own: OpenCL C does not say which type an image has. None if the textures are linear, for
    their kernels do.
    """
    halves = [t for t in (*plan.slots, *plan.regions, *plan.states) if t.dtype == FLOAT16]
    if any(texture.tiling.linear for texture in halves):
        return None
    wide: dict[Storage, Texture] = {texture: replace(texture, dtype=FLOAT32) for texture in halves}

    def of_float(texture: Texture) -> Texture:
        return wide.get(texture, texture)

    def launch_of(launch: Launch) -> Launch:
        arguments = (replace(a, storage=wide.get(a.storage, a.storage)) for a in launch.source.arguments)
        return replace(launch, source=replace(launch.source, arguments=tuple(arguments)))

    def place_of(place: Placement) -> Placement:
        return replace(place, storage=wide.get(place.storage, place.storage))

    return replace(
        plan, launches=tuple(map(launch_of, plan.launches)), states=tuple(map(of_float, plan.states)),
        placements={name: place_of(place) for name, place in plan.placements.items()},
        slots={of_float(texture): slot for texture, slot in plan.slots.items()},
        regions={of_float(texture): _region(each, texture in wide) for texture, each in plan.regions.items()},
        most_alive=2 * plan.most_alive,
    )


def _region(region: Region, is_widened: bool) -> Region:
    """All start at twice their offset, so that those that are alive together stay apart."""
    factor = 2 if is_widened else 1
    return Region(2 * region.offset, factor * region.row_bytes, factor * region.bytes)
