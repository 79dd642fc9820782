"""Writes compiled files of models: see Model.save."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from imgconv.arrays import Shapes
from imgconv.checking.player_checks import with_checks
from imgconv.cl.device_info import DeviceInfo
from imgconv.compiling.compiler import with_image_limit
from imgconv.compiling.emit import ConstantContent
from imgconv.compiling.shared_packings import Packings
from imgconv.errors import InputError, ModelError, UnsupportedError
from imgconv.loading.compiled import CompiledFileSource, CompiledModel, ModelSource
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.device_target import target_of
from imgconv.loading.native_functions import native_functions_fit
from imgconv.loading.file_plans import plans_for, with_generic
from imgconv.stored.compiled_file import DevicePlan, SizedModel, save_sizes
from imgconv.stored.precision_file import fingerprint
from imgconv.stored.tuning import TuningDatabase


def save_sized(
    path: str | os.PathLike[str], compiled: CompiledModel, source: ModelSource | CompiledFileSource,
    targets: Sequence[str | os.PathLike[str] | DeviceInfo], sizes: Sequence[Shapes], generic: bool, player_only: bool,
) -> None:
    """Writes the file of a model that `source` compiled, and of the same for other sizes; see Model.save.

    Raises InputError if the model's file was removed or has changed since it was loaded and is read again, and what
    `_plans_to_save` and `save_sizes` raise.
    """
    if isinstance(source, ModelSource):
        source = replace(source, cached=False)
        if not isinstance(compiled.plan.content, ConstantContent):  # files store weights by the way they are packed
            shapes = {value.name: value.shape for value in compiled.plan.inputs}
            loaded = compiled.graph
            try:
                compiled = source.compile({**source.shapes, **shapes}, {})
            except UnsupportedError:
                raise
            except (InputError, ModelError) as error:
                raise InputError(
                    f"saving this model reads {source.name!r} again, which was removed or has changed since it was "
                    f"loaded: put it back and load it again ({error})"
                ) from error
            if fingerprint(compiled.graph) != fingerprint(loaded):
                raise InputError(f"{source.name!r} has changed since it was loaded: load it again")
    states, packings = compiled.states, Packings()
    others = [source.compile({**source.shapes, **each}, {}, [compiled.session]) for each in sizes]
    made = []
    for each in (compiled, *others):
        plans = _plans_to_save(each, source.info, targets, source.tuning, packings)
        if generic:
            plans = with_generic(plans, each.graph, each.config, states, packings)
        made.append(SizedModel(each.graph, each.config, plans, states))
    save_sizes(path, made, source.description, source.format, player_only)


def _plans_to_save(
    compiled: CompiledModel, own: DeviceInfo, targets: Sequence[str | os.PathLike[str] | DeviceInfo],
    tuning: TuningDatabase | None, packings: Packings,
) -> list[DevicePlan]:
    """The plans of a compiled file: the model's own with its binaries, or those for devices that need not be there.

    If the own one uses the device's native functions, or its instruction for products of bytes, another one is for
    devices where these were not measured.
    targets: see Model.save; empty for the model's own. packings: see plans_for. Raises what `load` raises, and
    InputError.
    """
    config = compiled.config
    if not targets:
        native_functions = native_functions_fit(compiled.session.context, config)
        target = with_image_limit(target_of(own, native_functions), config)
        found = DevicePlan(compiled.plan, own.key, target, compiled.session.binaries())
        found = with_checks(found, compiled.graph, config, compiled.states)
        others = [own] if target.native_functions or target.dot_product else []
    else:
        found = None
        others = [each if isinstance(each, DeviceInfo) else read_device_description(each) for each in targets]
    plans = plans_for(compiled.graph, config, others, tuning, compiled.states, packings)
    return plans if found is None else [found, *plans]
