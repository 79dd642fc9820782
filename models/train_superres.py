"""Train the demo's 2x super-resolution network on pictures that this script draws.

No picture is downloaded: shapes, lettering, patterns, textures and strokes are drawn with numpy and Pillow, larger than
needed, and averaged down. The low-resolution input is Pillow's BICUBIC downscale by two (which widens its filter, so it
does not alias), the usual degradation in the literature; the baseline is Pillow's BICUBIC upscale.

The network works at low resolution and makes its four output pixels from channels at the very end, as in ESPCN
(Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
Network", CVPR 2016), with the PReLUs of FSRCNN (Dong et al., "Accelerating the Super-Resolution Convolutional Neural
Network", ECCV 2016), short residual blocks without normalisation as in EDSR (Lim et al., CVPRW 2017), and only the
difference to the enlarged input is learned, as in VDSR (Kim et al., CVPR 2016).

Usage::

    pip install torch numpy pillow
    python models/train_superres.py [--steps 8000] [--seed 1] [--output models/superres_x2.npz]

Only this script needs torch: the result is a plain ``.npz`` file. The weights in the repository come from the defaults
(torch 2.13.0, 14 minutes on one CPU core); on ``examples/demo.png`` they reach 28.46 dB, bicubic reaches 25.64 dB.
"""

from __future__ import annotations

import argparse
import math
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageFont

if TYPE_CHECKING:
    import torch

CHANNELS = 32
BLOCKS = 2
SCALE = 2

PICTURE = 192
"""Side of a drawn training picture in high-resolution pixels."""

OVERSAMPLING = 3
"""Pictures are drawn this many times larger and averaged down, because ImageDraw itself does not anti-alias."""

CANVAS = PICTURE * OVERSAMPLING

ROOT = Path(__file__).resolve().parents[1]

Color = tuple[int, int, int]


# --- Drawing ----------------------------------------------------------------------------------------------------------


def random_color(rng: np.random.Generator) -> Color:
    """A color: mostly anywhere in the RGB cube, sometimes a gray, sometimes close to black or white."""
    kind = rng.uniform()
    if kind < 0.15:
        values = np.full(3, rng.integers(0, 256))
    elif kind < 0.3:
        values = np.where(rng.uniform() < 0.5, 0, 255) + rng.integers(-25, 26, 3)
    else:
        values = rng.integers(0, 256, 3)
    red, green, blue = (int(v) for v in np.clip(values, 0, 255))
    return red, green, blue


def grid(rng: np.random.Generator, warp: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the canvas, turned by a random angle.

    Args:
        warp: how far, in high-resolution pixels, smooth noise moves them.

    Returns:
        x and y, each (CANVAS, CANVAS) float64 in high-resolution pixels from the centre.
    """
    axis = (np.arange(CANVAS) + 0.5) / OVERSAMPLING - PICTURE / 2
    x, y = np.meshgrid(axis, axis)
    if warp:
        x = x + warp * noise(rng, 3.0)
        y = y + warp * noise(rng, 3.0)
    angle = rng.uniform(0, 2 * math.pi) if rng.uniform() < 0.7 else rng.integers(0, 4) * math.pi / 2
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def noise(rng: np.random.Generator, exponent: float) -> np.ndarray:
    """Fractal noise: white noise whose amplitude spectrum is shaped to 1 / f ** (exponent / 2).

    Returns:
        (CANVAS, CANVAS) float64 with mean 0 and standard deviation 1.
    """
    spectrum = np.fft.rfft2(rng.standard_normal((CANVAS, CANVAS)))
    frequency = np.hypot(np.fft.fftfreq(CANVAS)[:, None], np.fft.rfftfreq(CANVAS)[None, :])
    frequency[0, 0] = np.inf
    field = np.fft.irfft2(spectrum / frequency ** (exponent / 2), (CANVAS, CANVAS))
    return field / field.std()


def colorize(values: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Turn values in 0..1, shape (CANVAS, CANVAS), into a picture through a random palette of two to five colors."""
    stops = np.array([random_color(rng) for _ in range(rng.integers(2, 6))], dtype=np.float64)
    places = np.linspace(0, 1, len(stops))
    channels = [np.interp(values, places, stops[:, c]) for c in range(3)]
    return Image.fromarray(np.rint(np.stack(channels, axis=-1)).astype(np.uint8))


def draw_gradient(rng: np.random.Generator) -> Image.Image:
    """A straight or round gradient."""
    x, y = grid(rng)
    if rng.uniform() < 0.5:
        return colorize(np.clip(x / PICTURE + 0.5, 0, 1), rng)
    radius = np.hypot(x - rng.uniform(-60, 60), y - rng.uniform(-60, 60))
    return colorize(np.clip(radius / rng.uniform(50, 250), 0, 1), rng)


def draw_noise(rng: np.random.Generator) -> Image.Image:
    """Clouds, terrain, marble: fractal noise, as it is or folded into veins."""
    field = noise(rng, rng.uniform(1.8, 4.0))
    if rng.uniform() < 0.3:
        field = np.sin(field * rng.uniform(2, 9))
    elif rng.uniform() < 0.3:
        field = np.abs(field) * 2 - 2
    return colorize(np.clip(field / 4 + 0.5, 0, 1), rng)


def draw_pattern(rng: np.random.Generator) -> Image.Image:
    """A repeating pattern, straight or warped: stripes, checks, dots, grid lines, rings, rays, bricks."""
    x, y = grid(rng, warp=rng.uniform(2, 14) if rng.uniform() < 0.5 else 0.0)
    # Perspective makes one picture hold a whole range of periods.
    if rng.uniform() < 0.3:
        depth = 1 + (y / PICTURE + 0.5) * rng.uniform(0.5, 2.5)
        x, y = x * depth, y * depth
    period = math.exp(rng.uniform(math.log(3), math.log(36)))
    u, v = x / period, y / (period * rng.uniform(0.5, 2))
    duty = rng.uniform(0.15, 0.85)
    kind = rng.integers(0, 8)
    values: np.ndarray
    if kind == 0:
        values = u % 1 < duty
    elif kind == 1:
        values = (np.floor(u) + np.floor(v)) % 2
    elif kind == 2:
        values = np.hypot(u % 1 - 0.5, v % 1 - 0.5) < duty / 2
    elif kind == 3:
        values = np.minimum(u % 1, v % 1) < duty / 2
    elif kind == 4:
        values = np.hypot(u, v) % 1 < duty
    elif kind == 5:
        values = (np.arctan2(y, x) / (2 * math.pi) * rng.integers(6, 60)) % 1 < duty
    elif kind == 6:
        row = np.floor(v)
        values = np.minimum((u / 2 + row / 2) % 1 * 2, v % 1) < duty / 3
    else:
        values = np.sin(2 * math.pi * u) * np.sin(2 * math.pi * v * rng.integers(0, 2) + 1.5) / 2 + 0.5
    return colorize(values.astype(np.float64), rng)


def random_outline(rng: np.random.Generator) -> list[tuple[float, float]]:
    """The corners, in canvas units, of a random triangle, quadrilateral, star or smooth blob."""
    cx, cy = rng.uniform(0, CANVAS, 2)
    radius = math.exp(rng.uniform(math.log(4), math.log(80))) * OVERSAMPLING
    kind = rng.integers(0, 3)
    if kind == 0:
        angles = np.sort(rng.uniform(0, 2 * math.pi, rng.integers(3, 7)))
        radii = radius * rng.uniform(0.5, 1.2, len(angles))
    elif kind == 1:
        count = int(rng.integers(4, 10)) * 2
        angles = np.arange(count) * 2 * math.pi / count + rng.uniform(0, 6)
        radii = np.where(np.arange(count) % 2, radius, radius * rng.uniform(0.3, 0.9))
    else:
        angles = np.linspace(0, 2 * math.pi, 80, endpoint=False)
        waves = [rng.uniform(-0.4, 0.4) / k * np.sin(k * angles + rng.uniform(0, 6)) for k in range(1, 6)]
        radii = radius * (1 + np.sum(waves, axis=0))
    return [(cx + r * math.cos(a), cy + r * math.sin(a)) for a, r in zip(angles, radii, strict=True)]


def add_shapes(image: Image.Image, rng: np.random.Generator) -> None:
    """Polygons, ellipses, boxes and arcs, filled, outlined or both."""
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(4, 40)):
        fill = random_color(rng) if rng.uniform() < 0.75 else None
        width = round(math.exp(rng.uniform(math.log(0.6), math.log(6))) * OVERSAMPLING)
        outline = random_color(rng) if fill is None or rng.uniform() < 0.35 else fill
        x, y = rng.uniform(-20, CANVAS, 2)
        w, h = np.exp(rng.uniform(math.log(3), math.log(90), 2)) * OVERSAMPLING
        box = (x, y, x + w, y + h)
        kind = rng.integers(0, 5)
        if kind == 0:
            draw.ellipse(box, fill, outline, width)
        elif kind == 1:
            draw.rectangle(box, fill, outline, width)
        elif kind == 2:
            draw.rounded_rectangle(box, min(w, h) * rng.uniform(0.1, 0.45), fill, outline, width)
        elif kind == 3:
            start = rng.uniform(0, 360)
            draw.arc(box, start, start + rng.uniform(30, 330), outline, width)
        else:
            draw.polygon(random_outline(rng), fill, outline, width)


def add_lines(image: Image.Image, rng: np.random.Generator) -> None:
    """Straight strokes, often in parallel families such as fences, rigging and rulings."""
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(2, 10)):
        color = random_color(rng)
        width = max(1, round(math.exp(rng.uniform(math.log(0.4), math.log(5))) * OVERSAMPLING))
        x0, y0, x1, y1 = rng.uniform(-0.1 * CANVAS, 1.1 * CANVAS, 4)
        step = rng.uniform(2, 20, 2) * OVERSAMPLING * rng.choice([-1, 1], 2)
        for k in range(rng.integers(1, 14)):
            dx, dy = step * k
            draw.line((x0 + dx, y0 + dy, x1 + dx, y1 + dy), color, width)


def add_strokes(image: Image.Image, rng: np.random.Generator) -> None:
    """Bent strokes (cubic Bezier curves) in bunches: hair, grass, handwriting."""
    draw = ImageDraw.Draw(image)
    t = np.linspace(0, 1, 24)[:, None]
    basis = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    for _ in range(rng.integers(1, 6)):
        base = rng.uniform(0, CANVAS, (4, 2))
        color = np.array(random_color(rng))
        width = math.exp(rng.uniform(math.log(0.4), math.log(4)))
        spread = rng.uniform(4, 40) * OVERSAMPLING
        for _ in range(rng.integers(1, 40)):
            curve = basis @ (base + rng.normal(0, spread, 2) + rng.normal(0, spread / 4, (4, 2)))
            red, green, blue = (int(v) for v in np.clip(color + rng.integers(-30, 31), 0, 255))
            thickness = max(1, round(width * OVERSAMPLING))
            draw.line([(x, y) for x, y in curve], (red, green, blue), thickness, joint="curve")


def add_text(image: Image.Image, rng: np.random.Generator) -> None:
    """Lines of random letters in Pillow's own font, level or turned."""
    alphabet = list(string.ascii_letters + string.digits + "  .,:;!?&%()-+=/")
    for _ in range(rng.integers(2, 9)):
        size = math.exp(rng.uniform(math.log(6), math.log(60))) * OVERSAMPLING
        font = ImageFont.load_default(size)
        lines = ["".join(rng.choice(alphabet, rng.integers(2, 22))) for _ in range(rng.integers(1, 6))]
        text = "\n".join(lines)
        stroke = round(size * 0.03) if rng.uniform() < 0.3 else 0
        mask = Image.new("L", image.size, 0)
        place = tuple(rng.uniform(-0.2 * CANVAS, 0.8 * CANVAS, 2))
        ImageDraw.Draw(mask).multiline_text(place, text, 255, font, stroke_width=stroke)
        if rng.uniform() < 0.4:
            mask = mask.rotate(rng.uniform(-90, 90), Image.Resampling.BICUBIC)
        image.paste(random_color(rng), (0, 0), mask)


def draw_background(rng: np.random.Generator) -> Image.Image:
    """Any full-canvas picture: a flat color, a gradient, noise or a pattern."""
    kinds: tuple[Callable[[np.random.Generator], Image.Image], ...] = (draw_gradient, draw_noise, draw_pattern)
    if rng.uniform() < 0.12:
        return Image.new("RGB", (CANVAS, CANVAS), random_color(rng))
    return kinds[rng.integers(0, len(kinds))](rng)


def draw_picture(rng: np.random.Generator) -> Image.Image:
    """Draw one training picture.

    Returns:
        An RGB picture of PICTURE x PICTURE pixels.
    """
    image = draw_background(rng)
    if rng.uniform() < 0.35:
        mask = Image.new("L", image.size, 0)
        for _ in range(rng.integers(1, 6)):
            ImageDraw.Draw(mask).polygon(random_outline(rng), 255)
        image = Image.composite(draw_background(rng), image, mask)
    for add, chance in ((add_shapes, 0.55), (add_lines, 0.35), (add_strokes, 0.35), (add_text, 0.45)):
        if rng.uniform() < chance:
            add(image, rng)
    if rng.uniform() < 0.25:
        light = np.clip(noise(rng, 3.5) * 30 + 215, 0, 255).astype(np.uint8)
        image = ImageChops.multiply(image, Image.merge("RGB", [Image.fromarray(light)] * 3))
    if rng.uniform() < 0.4:
        image = ImageEnhance.Color(image).enhance(rng.uniform(0.1, 0.9))
    # Photographs are rarely as crisp as line art: without soft pictures the network would sharpen everything.
    if rng.uniform() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 1.0) * OVERSAMPLING))
    how = Image.Resampling.BOX if rng.uniform() < 0.6 else Image.Resampling.LANCZOS
    image = image.resize((PICTURE, PICTURE), how)
    if rng.uniform() < 0.15:
        grain = rng.normal(0, rng.uniform(1, 5), (PICTURE, PICTURE, 3))
        image = Image.fromarray(np.clip(np.rint(np.asarray(image) + grain), 0, 255).astype(np.uint8))
    return image


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
