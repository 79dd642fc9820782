"""The operators: one file per family. Importing this package fills the operator table, which `find` reads."""

import importlib
import pkgutil

from imgconv.ops.registry import Body, Call, Operator, find, operator, supported

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Body", "Call", "Operator", "find", "operator", "supported"]
