"""A driving model with the interface of openpilot's supercombo: camera frames, desire and state in, a driving plan out.

Comma.ai has published no paper on it. The inputs, the state and the 6472 numbers of the output are openpilot 0.8's
(github.com/commaai/openpilot, selfdrive/modeld/models). The layers between are our own: the MBConv blocks of
EfficientNet-B0 (Tan and Le, arXiv:1905.11946) without squeeze-and-excite and with ELU (Clevert et al.,
arXiv:1511.07289), fully connected heads and a GRU cell (Cho et al., arXiv:1406.1078). 0.28 G multiply-adds a frame.
"""

from __future__ import annotations

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, concatenate
from models.efficientnet_b0 import STAGES
from models.layers import Layers, build_network, scaled
from models.weights import Weights

CAMERAS = ("input_imgs", "big_input_imgs")
STATE, HIDDEN = 512, 64

# Numbers per head, in openpilot 0.8's layout: the first is 5 plans of 33 points with 15 means and 15 deviations each.
HEADS = {
    "plan": 5 * (2 * 33 * 15 + 1), "lane_lines": 4 * 2 * 33 * 2, "lane_line_probabilities": 8,
    "road_edges": 2 * 2 * 33 * 2, "leads": 2 * (2 * 6 * 4 + 3), "lead_probabilities": 3, "desire_state": 8, "meta": 80,
    "pose": 12,
}


def supercombo(
    width: float = 1.0, size: int = 128, batch: int = 1, weights: Weights | None = None, cameras: int = 2
) -> Graph:
    """Each camera gives two frames, each YUV 4:2:0 in 6 planes: input_imgs and, with two cameras, big_input_imgs.

    Inputs: (batch, 12, size, 2 size) for each camera, desire (batch, 8), traffic_convention (batch, 2), initial_state
    (batch, 512). Output: (batch, 6472), the heads one after another, then the state, which is the next initial_state.
    """

    def network(net: Layers, *inputs: Tensor) -> Tensor:
        *pictures, desire, traffic, state = inputs
        seen = concatenate([_features(net, concatenate(pictures, 1), width), desire, traffic], 1)
        state = net.gated_recurrent_unit(net.linear(seen, "trunk", STATE).elu(), state, "memory")
        heads = [
            net.linear(net.linear(state, f"{name}.hidden", HIDDEN).elu(), f"{name}.output", count)
            for name, count in HEADS.items()
        ]
        return concatenate([*heads, state], 1)

    inputs: dict[str, tuple[int, ...]] = dict.fromkeys(CAMERAS[:cameras], (batch, 12, size, 2 * size))
    inputs |= {"desire": (batch, 8), "traffic_convention": (batch, 2), "initial_state": (batch, STATE)}
    return build_network("supercombo", network, inputs, weights, output="outputs")


def _features(net: Layers, x: Tensor, width: float) -> Tensor:
    """The cameras' features (N, features): 32 channels at each position of the last feature map."""
    x = net.unit(x, "stem", scaled(24 * width), 3, 2, activation=Tensor.elu)
    for stage, (expansion, window, stride, channels, blocks) in enumerate(STAGES):
        for block in range(blocks):
            name, step = f"blocks.{stage}.{block}", 1 if block else stride
            x = _block(net, x, name, expansion, window, step, scaled(channels * width))
    return net.unit(x, "features", 32, activation=Tensor.elu).flatten()


def _block(net: Layers, x: Tensor, name: str, expansion: int, window: int, stride: int, channels: int) -> Tensor:
    """Expand, filter each channel, project without activation; add the input if shapes agree."""
    wide, expanded = x, x.shape[1] * expansion
    if expansion != 1:
        wide = net.unit(x, f"{name}.expand", expanded, activation=Tensor.elu)
    wide = net.unit(wide, f"{name}.filter", expanded, window, stride, expanded, activation=Tensor.elu)
    made = net.unit(wide, f"{name}.project", channels)
    return x + made if made.shape == x.shape else made
