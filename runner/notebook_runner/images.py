"""Compares images by their worst tile.

One missing point of a plot changes the mean less than noise of the renderer. So the mean decides nothing.
"""

import base64
import binascii
import io
import math
import warnings
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageStat

MAX_PIXELS = 40_000_000
TILES = 16
FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}


class ImageInvalid(Exception):
    """The image is too large or cannot be decoded."""


@dataclass(frozen=True)
class Difference:
    """Root mean square differences, relative to full scale. `tile` is the column and row of the worst one."""

    mean: float
    worst: float
    tile: tuple[int, int]

    def describe(self) -> str:
        column, row = self.tile
        return f"worst tile {self.worst:.4f} at column {column}, row {row}; mean {self.mean:.4f}"


def compare(golden: str, run: str, mime: str) -> Difference:
    """Compares two images in base64.

    # Errors
    `ImageInvalid` if an image cannot be decoded or if the sizes differ.
    """
    left, right = decode(golden, mime, "golden"), decode(run, mime, "run")
    if left.size != right.size:
        sizes = " and ".join(f"{image.width}x{image.height}" for image in (left, right))
        raise ImageInvalid(f"the sizes differ: {sizes}")
    return difference(left, right)


def decode(text: str, mime: str, name: str) -> Image.Image:
    """Decodes an image and composes it on white."""
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
        with warnings.catch_warnings():
            # Pillow warns of a decompression bomb above its own limit; ours is lower.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=(FORMATS[mime],)) as image:
                if not 0 < image.width * image.height <= MAX_PIXELS:
                    raise ImageInvalid(f"the image of the {name} is empty or has more than {MAX_PIXELS} pixels")
                if getattr(image, "n_frames", 1) != 1:
                    raise ImageInvalid(f"the image of the {name} is animated")
                return _on_white(image)
    except ImageInvalid:
        raise
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        binascii.Error,
        Image.DecompressionBombError,
    ) as error:
        raise ImageInvalid(f"the image of the {name} cannot be decoded: {str(error)[:120]}") from error


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16 bits to 8: bright images would become equal.
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("RGB")


def difference(golden: Image.Image, run: Image.Image) -> Difference:
    changed = ImageChops.difference(golden, run)
    width, height = changed.size
    columns = [width * tile // TILES for tile in range(TILES + 1)]
    rows = [height * tile // TILES for tile in range(TILES + 1)]
    worst, place, total = 0.0, (0, 0), 0.0
    for column in range(TILES):
        for row in range(TILES):
            box = (columns[column], rows[row], columns[column + 1], rows[row + 1])
            pixels = (box[2] - box[0]) * (box[3] - box[1])
            # An image with fewer than 16 pixels in a direction has tiles without any.
            if pixels:
                squares = sum(ImageStat.Stat(changed.crop(box)).sum2)
                total += squares
                rms = math.sqrt(squares / (3 * pixels)) / 255
                if rms > worst:
                    worst, place = rms, (column, row)
    return Difference(math.sqrt(total / (3 * width * height)) / 255, worst, place)
