"""Train the demo's 2x super-resolution network on the pictures that `superres_pictures.py` draws.

No picture is downloaded. The low-resolution input is Pillow's BICUBIC downscale by two (which widens its filter, so it
does not alias), the usual degradation in the literature; the baseline is Pillow's BICUBIC upscale.

The network works at low resolution and makes its four output pixels from channels at the very end, as in ESPCN
(Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
Network", CVPR 2016), with the PReLUs of FSRCNN (Dong et al., "Accelerating the Super-Resolution Convolutional Neural
Network", ECCV 2016), short residual blocks without normalisation as in EDSR (Lim et al., CVPRW 2017), and only the
difference to the enlarged input is learned, as in VDSR (Kim et al., CVPR 2016).

Usage::

    pip install . torch
    python -m models.train_superres [--steps 8000] [--seed 1] [--output models/superres_x2.npz]

Only this script needs torch: the result is a plain ``.npz`` file. The weights in the repository come from the defaults
(torch 2.13.0, 14 minutes on one CPU core); on ``examples/demo.png`` they reach 28.46 dB, bicubic reaches 25.64 dB.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from models.superres_pictures import draw_picture

if TYPE_CHECKING:
    import torch

CHANNELS = 32
BLOCKS = 2
SCALE = 2

ROOT = Path(__file__).resolve().parents[1]


# --- Pictures and figures ---------------------------------------------------------------------------------------------


def downscale(image: Image.Image) -> Image.Image:
    """The low-resolution version of a picture: half the size, Pillow's BICUBIC."""
    return image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.BICUBIC)


def psnr(result: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of two uint8 pictures over all pixels and channels: 10 log10(255**2 / MSE)."""
    error = np.mean((result.astype(np.float64) - truth.astype(np.float64)) ** 2)
    return 10 * math.log10(255**2 / max(float(error), 1e-12))


def draw_pairs(count: int, seed: int, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` pictures and their low-resolution versions.

    Returns:
        uint8 arrays, (count, 3, PICTURE / 2, PICTURE / 2) low and (count, 3, PICTURE, PICTURE) high.
    """
    low, high = [], []
    for index in range(count):
        image = draw_picture(np.random.default_rng((seed, index)))
        high.append(np.asarray(image).transpose(2, 0, 1))
        low.append(np.asarray(downscale(image)).transpose(2, 0, 1))
        if (index + 1) % 100 == 0 or index + 1 == count:
            print(f"drew {index + 1} of {count} {label} pictures", flush=True)
    return np.stack(low), np.stack(high)


def sample_batch(
    low: np.ndarray, high: np.ndarray, patch: int, batch: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Cut random patches; turn, mirror and invert them and swap their color channels.

    All of these commute with a symmetric linear downscale, so each low picture stays the downscale of its high one.

    Args:
        low: (n, 3, h, w) uint8; high: (n, 3, 2h, 2w) uint8.
        patch: side of a patch in low-resolution pixels.

    Returns:
        float32 in 0..1: (batch, 3, patch, patch) and (batch, 3, 2 patch, 2 patch).
    """
    inputs: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for _ in range(batch):
        k = rng.integers(len(low))
        y, x = rng.integers(0, low.shape[2] - patch + 1), rng.integers(0, low.shape[3] - patch + 1)
        order, turns, mirror, invert = rng.permutation(3), rng.integers(4), rng.integers(2), rng.integers(2)
        for source, scale, into in ((low, 1, inputs), (high, SCALE, targets)):
            cut = source[k, order, y * scale : (y + patch) * scale, x * scale : (x + patch) * scale]
            cut = np.rot90(cut, int(turns), axes=(1, 2))
            cut = cut[:, :, ::-1] if mirror else cut
            into.append(255 - cut if invert else cut)
    return np.stack(inputs).astype(np.float32) / 255, np.stack(targets).astype(np.float32) / 255


# --- Network ----------------------------------------------------------------------------------------------------------


def make_network() -> torch.nn.Module:
    """Build the network: (n, 3, h, w) in 0..1 -> (n, 3, 2h, 2w), about 0..1 but not clipped.

    head    3x3 convolution 3 -> 32, PReLU
    block k 3x3 convolution 32 -> 32, PReLU, 3x3 convolution 32 -> 32, plus the block's input
    tail    3x3 convolution 32 -> 12, plus the input with every channel repeated four times; pixel shuffle

    All convolutions have stride 1 and one row of zero padding; every PReLU has one slope per channel.
    """
    import torch
    from torch import nn

    def convolution(inputs: int, outputs: int) -> nn.Conv2d:
        return nn.Conv2d(inputs, outputs, 3, padding=1)

    class SuperResolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = convolution(3, CHANNELS)
            self.head_slope = nn.Parameter(torch.full((CHANNELS,), 0.2))
            for k in range(BLOCKS):
                self.add_module(f"block{k}_a", convolution(CHANNELS, CHANNELS))
                self.register_parameter(f"block{k}_slope", nn.Parameter(torch.full((CHANNELS,), 0.2)))
                self.add_module(f"block{k}_b", convolution(CHANNELS, CHANNELS))
            self.tail = convolution(CHANNELS, 3 * SCALE**2)
            # The untrained network repeats pixels: training starts from a sensible picture instead of noise.
            for parameter in self.tail.parameters():
                nn.init.zeros_(parameter)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.prelu(self.head(x), self.head_slope)
            for k in range(BLOCKS):
                inner = nn.functional.prelu(self.get_submodule(f"block{k}_a")(y), self.get_parameter(f"block{k}_slope"))
                y = y + self.get_submodule(f"block{k}_b")(inner)
            y = self.tail(y) + x.repeat_interleave(SCALE**2, dim=1)
            return nn.functional.pixel_shuffle(y, SCALE)

    return SuperResolution()


def save_weights(network: torch.nn.Module, path: Path) -> None:
    """Write every parameter, under its torch name, as float32 into an .npz file."""
    arrays = {name: tensor.detach().numpy().astype(np.float32) for name, tensor in network.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path)


def enlarge(network: torch.nn.Module, image: Image.Image) -> np.ndarray:
    """Run the network on one picture: (h, w) pixels in, (2h, 2w, 3) uint8 out, clipped and rounded."""
    import torch

    x = np.asarray(image.convert("RGB"), dtype=np.float32).transpose(2, 0, 1)[None] / 255
    with torch.no_grad():
        y = network(torch.from_numpy(x)).numpy()[0]
    return np.rint(np.clip(y, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def report(network: torch.nn.Module, images: list[Image.Image]) -> str:
    """The mean PSNR of bicubic interpolation and of the network over high-resolution pictures, in words."""
    bicubic, ours = [], []
    for image in images:
        truth, small = np.asarray(image), downscale(image)
        bicubic.append(psnr(np.asarray(small.resize(image.size, Image.Resampling.BICUBIC)), truth))
        ours.append(psnr(enlarge(network, small), truth))
    a, b = float(np.mean(bicubic)), float(np.mean(ours))
    return f"bicubic {a:.2f} dB, network {b:.2f} dB, gain {b - a:+.2f} dB"


def train(options: argparse.Namespace) -> None:
    """Draw the pictures, train, save the weights at intervals and at the end, print loss and PSNR."""
    import torch

    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(options.seed)
    # The seeds are far apart, so that no training set contains a picture on which another run is judged.
    judged = draw_pairs(24, 1_000_000, "held-out")[1]
    held_out = [Image.fromarray(picture.transpose(1, 2, 0)) for picture in judged]
    low, high = draw_pairs(options.pictures, options.seed, "training")

    network = make_network()
    print(f"{sum(p.numel() for p in network.parameters())} parameters", flush=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.rate)
    warmup = min(100, options.steps // 10 + 1)

    def rate(step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * step / options.steps))
        return min((step + 1) / warmup, 0.01 + 0.99 * cosine)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    start = time.perf_counter()
    losses: list[float] = []
    for step in range(1, options.steps + 1):
        inputs, targets = sample_batch(low, high, options.patch, options.batch, rng)
        difference = network(torch.from_numpy(inputs)) - torch.from_numpy(targets)
        # Charbonnier's loss, a smooth |d| (Lai et al., "Deep Laplacian Pyramid Networks", CVPR 2017).
        loss = torch.sqrt(difference * difference + 1e-6).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % options.every == 0 or step == options.steps:
            save_weights(network, options.output)
            done = f"step {step}/{options.steps}, {time.perf_counter() - start:.0f} s, loss {np.mean(losses):.5f}"
            print(f"{done}; {report(network, held_out)}", flush=True)
            losses.clear()
    print(f"{options.output}: {options.output.stat().st_size} bytes")
    if options.demo.exists():
        print(f"{options.demo}: {report(network, [Image.open(options.demo).convert('RGB')])}")


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description="Train the demo's 2x super-resolution network on drawn pictures.")
    parser.add_argument("--steps", type=int, default=8000, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=1, help="seed of the pictures, the weights and the patches")
    parser.add_argument("--output", type=Path, default=ROOT / "models" / "superres_x2.npz", help="weights to write")
    parser.add_argument("--demo", type=Path, default=ROOT / "examples" / "demo.png", help="picture to judge by")
    parser.add_argument("--pictures", type=int, default=600, help="training pictures to draw")
    parser.add_argument("--patch", type=int, default=40, help="side of a patch in low-resolution pixels")
    parser.add_argument("--batch", type=int, default=16, help="patches in one step")
    parser.add_argument("--rate", type=float, default=1e-3, help="Adam's highest learning rate")
    parser.add_argument("--every", type=int, default=250, help="steps between two saved weights")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; more than one may change the last digits")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
