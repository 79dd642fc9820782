"""Recurrent segmentation of video: an encoder, a convolutional GRU between frames, and a decoder.

The cell comes from Ballas et al., "Delving Deeper into Convolutional Networks for Learning Video Representations",
ICLR 2016, arXiv:1511.06432, in the form of robust video matting (Lin et al., arXiv:2108.11515):

    z, r = sigmoid(W * [x, h])      n = tanh(V * [x, r h])      h' = (1 - z) h + z n

The layers around it are ours. Feed `state_out` to `state_in` at the next frame: `model.stream` keeps it on the device.
"""

from __future__ import annotations

from collections.abc import Mapping

from imgconv.errors import ModelError
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, concatenate
from models.layers import Layers, build_network, scaled
from models.weights import Weights

REDUCTION = 4


def conv_gru(width: float = 1.0, size: int = 256, batch: int = 1, weights: Weights | None = None) -> Graph:
    """Inputs frame (batch, 3, size, size) and state_in (batch, 32, size/4, size/4), outputs mask (batch, 1, size, size)
    in 0..1 and state_out with state_in's shape; `width` scales the 32 channels.

    Raises ModelError if size is not a multiple of 4.
    """
    if size % REDUCTION:
        raise ModelError(f"conv_gru: size {size} is no multiple of {REDUCTION}")
    channels = scaled(32 * width)

    def network(net: Layers, frame: Tensor, state: Tensor) -> Mapping[str, Tensor]:
        half = net.convolution(frame, "encoder.0", channels // 2, 3, stride=2).relu()
        x = net.convolution(half, "encoder.1", channels, 3, stride=2).relu()
        state = _cell(net, x, state, "gru")
        wide = net.convolution(concatenate([x, state], 1), "decoder.0", channels // 2, 3).relu().upsample(2)
        last = net.convolution(concatenate([wide, half], 1), "decoder.1", channels // 2, 3).relu().upsample(2)
        return {"mask": net.convolution(last, "mask", 1, 3).sigmoid(), "state_out": state}

    small = size // REDUCTION
    inputs = {"frame": (batch, 3, size, size), "state_in": (batch, channels, small, small)}
    return build_network("conv_gru", network, inputs, weights)


def _cell(net: Layers, x: Tensor, state: Tensor, name: str) -> Tensor:
    """The next state; x and the state are (N, C, H, W)."""
    channels = state.shape[1]
    gates = net.convolution(concatenate([x, state], 1), f"{name}.gates", 2 * channels, 3).sigmoid()
    update, reset = gates.slice(1, 0, channels), gates.slice(1, channels, 2 * channels)
    candidate = net.convolution(concatenate([x, reset * state], 1), f"{name}.candidate", channels, 3).tanh()
    return (1 - update) * state + update * candidate
