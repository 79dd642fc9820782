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

HEAVY = Convolution, Product


@contextmanager
def workers_started(graph: Graph, config: Config, context: Context) -> Iterator[None]:
    """Keeps the device's workers for the plans that are made inside; starts them, if no load left a note."""
    with context.builders as builders:
        # Half of the convolutions and products of a network have a kernel that another one has too.
        count = workers_for(context, sum(isinstance(node.operation, HEAVY) for node in graph.nodes) // 2)
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
