"""DynamicQuantizeLSTM of com.microsoft: an LSTM with quantised weights, whose input and state are quantised too."""

from __future__ import annotations

from dataclasses import replace

from imgconv.ops.quantization import dynamically_quantised, subtract_zero_point
from imgconv.ops.recurrent import lstm
from imgconv.ops.registry import MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor


@operator("DynamicQuantizeLSTM", domain=MICROSOFT, signature=Signature({
    "X": "float32", "W": "T2", "R": "T2", "B": "float32?", "sequence_lens": "int32?", "initial_h": "float32?",
    "initial_c": "float32?", "P": "float32?", "W_scale": "float32", "W_zero_point": "T2", "R_scale": "float32",
    "R_zero_point": "T2"}, {"T2": ("uint8", "int8")}, (
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")))
def dynamic_quantize_lstm(call: Call) -> list[Tensor]:
    """LSTM of W (directions, I, 4*H) and R (directions, H, 4*H), each with a scale for a direction or for its columns.

    DynamicQuantizeLinear quantises X once, up to the end of the longest sequence, and the state of the whole batch at
    each step. onnxruntime does so on one thread; on several it quantises the states of parts of a batch apart.
    """
    inputs = (_rounded_input(call), _float_weights(call, 1, 8), _float_weights(call, 2, 10), *call.inputs[3:8])
    plain = replace(call, op_type="LSTM", inputs=inputs)
    return lstm(plain, lambda state, r: _fake_quantized(state).matmul(r.transpose(1, 0)))


def _rounded_input(call: Call) -> Tensor:
    """X (steps, batch, I) quantised; steps after the longest sequence are zero."""
    x, lengths = call.input(0), call.constant(4, "sequence_lens")
    if lengths is None or x.rank != 3:
        return _fake_quantized(x)
    longest = min(int(lengths.max(initial=0)), x.shape[0])
    return _fake_quantized(x.slice(0, 0, longest)).pad([0, 0, 0], [x.shape[0] - longest, 0, 0])


def _fake_quantized(x: Tensor) -> Tensor:
    """Returns x as dynamic quantisation rounds it."""
    levels, scale, zero = dynamically_quantised(x)
    return (levels - zero) * scale


def _float_weights(call: Call, position: int, scales: int) -> Tensor:
    """Quantised weights as floats, (directions, 4*H, size); their scale and zero point are two inputs."""
    weights, scale, zero = call.input(position), call.input(scales), call.input(scales + 1)
    if weights.rank != 3 or any(t.shape not in (weights.shape[:1], weights.shape[::2]) for t in (scale, zero)):
        raise call.wrong(f"weights {list(weights.shape)} with scale {list(scale.shape)} and {list(zero.shape)}")
    spread = [t.reshape(t.shape[0], 1, -1) for t in (scale, zero)]
    return (subtract_zero_point(weights, spread[1]).cast("float32") * spread[0]).transpose(0, 2, 1)
