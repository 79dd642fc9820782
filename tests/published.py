"""Networks of models/ as published, and the folder with trained models of others."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from imgconv.graph.nodes import Graph
from models import Weights, build

CLASSIFIERS = sorted({"mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "squeezenet", "efficientnet_b0"})
REAL = Path(os.environ.get("IMGCONV_MODELS", ""))
needs_models = pytest.mark.skipif(
    "IMGCONV_MODELS" not in os.environ, reason="IMGCONV_MODELS does not name a folder of models and cases"
)


@functools.cache
def full_size(name: str) -> tuple[Graph, Weights]:
    """The network as published, and its parameters."""
    weights = Weights()
    return build(name, weights=weights), weights
