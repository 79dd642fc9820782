"""ONNX nodes in numpy, for the end of a model that depends on data.

registry.py has the table of functions, program.py prepares and runs a graph; loops.py, subgraphs.py and detections.py
rewrite it before that. The other files have one family of operators each. Types are ONNX's own: float64, int64 and
bool stay what they are.
"""

import importlib
import pkgutil

from imgconv.host.program import HostProgram, NodeTiming
from imgconv.host.registry import HostCall, find, host, runs, supported

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["HostCall", "HostProgram", "NodeTiming", "find", "host", "runs", "supported"]
