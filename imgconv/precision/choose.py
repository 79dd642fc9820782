"""Chooses the values of a model that are stored as fp16, and how its layers sum, by measuring the error.

Rounding a value to fp16 has a relative error of 2^-11. Most networks do not amplify it. A few do, especially in their
first layers with few channels, whose errors pass through all later layers. Also, fp16 ends at 65504.

Some values are known in advance: squares, long sums and inputs of logarithms stay fp32 in every plan
(compiling/textures.py), and so does a whole quantised network, because one quantised value more or less is a large
error, which other pictures may cause. The rest is found by running the model: first the values that are stored as fp16
(storage.py), then, with float16=2, how layers sum (sums.py), then the tiles of Winograd's filtering (tiles.py).

When a model is loaded, there are only synthetic inputs (calibration_inputs.py) and little time. Only the number of runs
depends on time: without `started` all inputs are measured, and each search runs to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from imgconv.arrays import Arrays
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Precision
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Convolution, Graph, Product, Reduction
from imgconv.precision.share import UNDECIDED
from imgconv.precision.storage import StorageSearch
from imgconv.precision.sums import AccumulationTrials, choose_sums
from imgconv.precision.tiles import TileTrials, choose_tiles
from imgconv.runtime.device import Device
from imgconv.runtime.programs import ProgressCallback
from imgconv.runtime.session import Session

BOUND = 1e-2
STEPS = frozenset({"round", "saturate", "floor", "ceil", "truncate", "sign"})
LOST = "in a model whose outputs overflow fp16 if inputs are large"
OF_LEVELS = "in a quantised network, whose quantised values fp16 could change"


@dataclass(frozen=True)
class PrecisionChoice:
    """The values that stay wider, and the largest relative error of the outputs on the inputs.

    half_error: the error if all values are fp16 except those near 65504; NaN if it was not measured. largest: the
    largest magnitude of every measured value. session: the chosen plan on the device.
    """

    precision: Precision
    error: float
    half_error: float
    largest: Mapping[str, float] = field(repr=False)
    session: Session = field(repr=False, compare=False)


def choose_precision(
    prepared: PreparedGraph, context: Device, progress: ProgressCallback | None = None, inputs: Sequence[Arrays] = (),
    bound: float = BOUND, runs: int | None = None, started: float | None = None,
) -> PrecisionChoice:
    """Returns the PrecisionChoice with which the settings' float16 changes the outputs by at most `bound` on the
    inputs.

    inputs: arrays by input name (default: synthetic pictures). runs: the maximum number of runs of each search.
    started: the perf_counter() at the start of a load that must not take long. Raises what Session raises.
    """
    graph, nothing = prepared.graph, frozenset(prepared.graph.values)
    if not inputs and is_quantised(graph):
        kept = Precision().with_float_values(nothing, OF_LEVELS)
        plan = prepared.plan(replace(prepared.config, precision=kept))
        return PrecisionChoice(kept, 0.0, float("nan"), {}, Session(plan, context, progress))
    storage = StorageSearch(prepared, context, progress, tuple(inputs), bound, started)
    if not storage.inputs or storage.loses_outputs():
        kept = Precision().with_float_values(nothing, LOST if storage.inputs else UNDECIDED)
        return PrecisionChoice(kept, 0.0, float("nan"), storage.largest, storage.reference)
    storage.search(runs if started is None else storage.runs_within(started))
    precision, error, session = storage.precision, max(storage.errors), storage.session
    seconds = None if started is None else storage.ready - started
    if prepared.config.float16 == 2:
        precision, error, session = choose_sums(AccumulationTrials(storage), ends_in_softmax(graph), runs, seconds)
    # Other devices measure for phones only if there is time.
    if started is None or prepared.target.is_mobile:
        found = choose_tiles(TileTrials(storage, precision, session), runs, seconds)
        if found:
            precision, error_on_phone, plan_of_phone = found
            error = max(error, error_on_phone)
            session = plan_of_phone if prepared.target.is_mobile else session
    return PrecisionChoice(precision, error, storage.half_error, storage.largest, session)


def is_quantised(graph: Graph) -> bool:
    """Returns whether most convolutions and products read the levels of a quantised network: what round makes."""
    steps = {
        node.output.name for node in graph.nodes
        if not STEPS.isdisjoint(function_names(node.epilogue))
        or isinstance(node.operation, Reduction) and not STEPS.isdisjoint(function_names(node.operation.body))
    }
    layers = [node for node in graph.nodes if isinstance(node.operation, (Convolution, Product))]
    return 2 * sum(not steps.isdisjoint(node.reads) for node in layers) > len(layers)


def ends_in_softmax(graph: Graph) -> bool:
    """Returns whether exponentials are summed after the last convolutions and products."""
    inner: set[str] = set()  # what a convolution or a product depends on
    for node in reversed(graph.nodes):
        if isinstance(node.operation, (Convolution, Product)) or node.output.name in inner:
            inner.update(node.reads)
    exponentials = {node.output.name for node in graph.nodes if "exp" in function_names(node.epilogue)}
    return any(
        isinstance(node.operation, Reduction) and node.operation.kind == "sum" and node.output.name not in inner
        and ("exp" in function_names(node.operation.body) or not exponentials.isdisjoint(node.reads))
        for node in graph.nodes
    )
