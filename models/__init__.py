"""Networks written with imgconv's lazy front end, and the scripts that trained them.

    graph = build("mobilenet_v2", size=192)
    model = imgconv.load(graph)

Every network in MODELS takes `width` (a factor on the channels), `size` (of the input), `batch` and `weights`. The
defaults are the published sizes and weights drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from imgconv.errors import ModelError
from imgconv.graph.nodes import Graph
from models.conv_gru import conv_gru
from models.efficientnet_b0 import efficientnet_b0
from models.mobilenet_v2 import mobilenet_v2
from models.mobilenet_v3_small import mobilenet_v3_small
from models.resnet import resnet18, resnet50
from models.squeezenet import squeezenet
from models.supercombo import supercombo
from models.unet import unet
from models.weights import Weights
from models.yolo import yolo

MODELS: Mapping[str, Callable[..., Graph]] = {
    "mobilenet_v2": mobilenet_v2, "mobilenet_v3_small": mobilenet_v3_small, "resnet18": resnet18, "resnet50": resnet50,
    "squeezenet": squeezenet, "efficientnet_b0": efficientnet_b0, "yolo": yolo, "unet": unet, "supercombo": supercombo,
    "conv_gru": conv_gru,
}


def build(name: str, **arguments: Any) -> Graph:
    """The Graph of a network in MODELS. `arguments` go to its function. Raises ModelError for any other name."""
    if name not in MODELS:
        raise ModelError(f"no model is called {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name](**arguments)


__all__ = ["MODELS", "Weights", "build"]
