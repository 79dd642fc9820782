"""Workers that get ready to build programs while the model is still planned, if programs will have to be built.

Whether they will is known for certain only from the plan. So a load leaves a note among the kept programs, under a hash
of the graph, the device and the settings; a later load that finds it expects to find the programs too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from imgconv.cl.device import Context
from imgconv.cl.program import workers_for
from imgconv.cl.program_cache import PROGRAMS
from imgconv.config import Config
from imgconv.files.kept import digest
from imgconv.graph.nodes import Convolution, Graph, Product



def kernels_foreseen(graph: Graph) -> int:
    """About as many kernels as a graph of convolutions needs: depthwise ones often share a launch with the next one."""
    operations = [node.operation for node in graph.nodes]
    return sum(isinstance(o, Product) or (isinstance(o, Convolution) and o.groups == 1) for o in operations)


@contextmanager
def workers_started(graph: Graph, config: Config, context: Context) -> Iterator[None]:
    """Keeps the device's workers for the plans that are made inside; starts them, if no load left a note."""
    with context.builders as builders:
        count = workers_for(context, kernels_foreseen(graph))
        key = _key(graph, config, context) if count else ""
        is_noted = not key or PROGRAMS.read(key) is not None
        if not is_noted:
            builders.start(count)
        yield
        if not is_noted:
            PROGRAMS.write(key, b"")


def _key(graph: Graph, config: Config, context: Context) -> str:
    about = ["note", context.info.key, config.float16, config.native_explog, config.max_image]
    return digest(json.dumps(about).encode(), str(graph).encode()).hex()
