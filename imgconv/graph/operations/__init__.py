"""The operations of nodes, one per file: fields, check of shapes, semantics in numpy, bounds.

A node's operation is one of OPERATIONS. Other layers have tables with an entry for each class: `EXPORTS` in
onnx_export/nodes.py, `LAYOUTS` in compiling/textures.py. stored/ stores the fields that model.fbs defines.
"""

from imgconv.graph.operations.concatenation import Concatenation
from imgconv.graph.operations.convolution import Convolution
from imgconv.graph.operations.gather import Gather
from imgconv.graph.operations.load import Load
from imgconv.graph.operations.operation import Operation
from imgconv.graph.operations.order import Order
from imgconv.graph.operations.product import Product
from imgconv.graph.operations.recurrence import Recurrence
from imgconv.graph.operations.reduction import Reduction, ReductionKind, neutral
from imgconv.graph.operations.suppression import Suppression

OPERATIONS: tuple[type[Operation], ...] = (
    Load, Reduction, Convolution, Product, Concatenation, Gather, Order, Suppression, Recurrence,
)

__all__ = [
    "OPERATIONS", "Concatenation", "Convolution", "Gather", "Load", "Operation", "Order", "Product", "Recurrence",
    "Reduction", "ReductionKind", "Suppression", "neutral",
]
