"""The nine operations of a node, one a file: its fields, the check of its shapes, its meaning in numpy, its bounds.

A node's operation is one of OPERATIONS. What other layers know of each is a table by its class: `EXPORTS` in
onnx_export/nodes.py, `LAYOUTS` in compiling/textures.py. stored/ follows the fields, by model.fbs.
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
