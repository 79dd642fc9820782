"""Makes the pictures of the documentation; needs Chromium for those of pages. In the checkout:

    python docs/make_pictures.py

demo.png      a part of the demo's picture, enlarged with bicubic interpolation and by its network
profile.png   the page of `imgconv profile` for that network, 1200 pixels wide
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

import imgconv  # noqa: E402
from examples import demo  # noqa: E402
from imgconv.preprocess import Preparation, read_picture, to_array, to_picture  # noqa: E402
from imgconv.reports.profile import html_page, measure  # noqa: E402
from models import superres  # noqa: E402
from models.train_superres import downscale  # noqa: E402

PICTURES = Path(__file__).parent / "pictures"
PART = (140, 210, 300, 330)  # of the demo's picture


def main() -> None:
    """Makes all pictures."""
    small = downscale(read_picture(demo.PICTURE))
    model = imgconv.load(superres.build(small.height, small.width))
    array = to_array(small, Preparation(scale=1 / 255))
    enlarged = to_picture(model(array)[0], value_range=(0, 1))
    parts = [each.crop(PART) for each in (small.resize(enlarged.size, Image.Resampling.BICUBIC), enlarged)]
    both = Image.new("RGB", (parts[0].width * 5 + 12, parts[0].height * 5 // 2), "white")
    for n, part in enumerate(parts):
        wide = part.resize((part.width * 5 // 2, part.height * 5 // 2), Image.Resampling.NEAREST)
        both.paste(wide, (n * (wide.width + 12), 0))
    both.save(PICTURES / "demo.png", optimize=True)
    profile = measure("superres.onnx", model, {"input": array}, 20)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "profile.html")
        file.write_text(html_page(profile), encoding="utf-8")
        photograph(file, PICTURES / "profile.png", 1200, 900)


def photograph(file: Path, picture: Path, width: int, height: int) -> None:
    """A picture of a page."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("make_pictures: no Chromium here: apt install chromium")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000",
        f"--window-size={width},{height}", f"--user-data-dir={file.parent / 'user'}",
        f"--screenshot={picture}", file.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with Image.open(picture) as shown:
        shown.convert("RGB").crop((0, 0, width, height)).quantize(128).save(picture, optimize=True)


if __name__ == "__main__":
    main()
