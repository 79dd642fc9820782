"""ONNX operators composed from primitives, one file per family. Importing it fills the table that `find` reads.

`operator` adds one of your own: see docs/operators.md, "Operators of your own".
"""

import importlib
import pkgutil

from imgconv.ops.registry import Body, Call, Operator, Signature, find, operator, qualified, supported

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Body", "Call", "Operator", "Signature", "find", "operator", "qualified", "supported"]
