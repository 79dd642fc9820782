"""Evaluates ONNX nodes in numpy: the part of a model that depends on data.

registry.py has the table of functions, host_program.py prepares and runs a graph; loops.py, subgraphs.py and
detections.py rewrite it before that. Each of the other files has one family of operators. Types are ONNX's own:
float64, int64 and bool are not converted.
"""

import importlib
import pkgutil

from imgconv.host.host_program import HostProgram, NodeTiming
from imgconv.host.registry import HostCall, find, has_host_function, host, supported

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["HostCall", "HostProgram", "NodeTiming", "find", "host", "has_host_function", "supported"]
