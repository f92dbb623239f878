"""Plots for the tests, drawn larger and reduced, as a renderer with antialiasing does."""

import base64
import io
import math
import random
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw, ImageFont

SCALE = 4


@dataclass(frozen=True)
class Plot:
    """A plot. `noise` moves the data, `shift` the whole drawing by pixels, `fade` brightens the ink."""

    kind: str = "points"
    size: tuple[int, int] = (640, 480)
    count: int = 100
    missing: tuple[int, ...] = ()
    noise: float = 0.0
    shift: float = 0.0
    bar: float = 8.0
    color: str = "#1f77b4"
    background: str | None = "white"
    title: str = "accuracy"
    ticks: int = 6
    legend: bool = False
    radius: float = 4.0
    seed: int = 7

    def but(self, **changed: object) -> "Plot":
        return replace(self, **changed)  # type: ignore[arg-type]

    def image(self) -> Image.Image:
        width, height = (side * SCALE for side in self.size)
        transparent = self.background is None
        image = Image.new(
            "RGBA" if transparent else "RGB", (width, height), (0, 0, 0, 0) if transparent else self.background
        )
        pen = ImageDraw.Draw(image)
        left, top, right, bottom = width * 0.1, height * 0.1, width * 0.95, height * 0.9
        pen.rectangle((left, top, right, bottom), outline="black", width=SCALE)
        for tick in range(self.ticks):
            x = left + (right - left) * tick / max(1, self.ticks - 1)
            pen.line((x, bottom, x, bottom + 4 * SCALE), fill="black", width=SCALE)
        if height > 100 * SCALE:
            pen.text(
                (width / 2 - 30 * SCALE, 4 * SCALE), self.title, fill="black", font=ImageFont.load_default(14 * SCALE)
            )
        self._data(pen, left, top, right, bottom)
        if self.legend:
            pen.rectangle(
                (right - 60 * SCALE, top + 5 * SCALE, right - 5 * SCALE, top + 30 * SCALE), outline="grey", width=SCALE
            )
            pen.line(
                (right - 55 * SCALE, top + 17 * SCALE, right - 35 * SCALE, top + 17 * SCALE),
                fill=self.color,
                width=2 * SCALE,
            )
        return image.resize(self.size, Image.Resampling.BOX)

    def _data(self, pen: ImageDraw.ImageDraw, left: float, top: float, right: float, bottom: float) -> None:
        chance = random.Random(self.seed)
        moves = random.Random(99)
        width, height, move = right - left, bottom - top, self.shift * SCALE
        if self.kind == "bars":
            for place, value in enumerate((3.0, 5.0, self.bar, 6.0)):
                x = left + width * (place + 0.6) / 5
                value += self.noise * moves.uniform(-1, 1)
                pen.rectangle((x, bottom - height * value / 10, x + width * 0.14, bottom), fill=self.color)
        elif self.kind == "line":
            dots = []
            for place in range(self.count):
                y = 0.5 + 0.35 * math.sin(place / self.count * 9) + self.noise * moves.uniform(-1, 1)
                if place not in self.missing:
                    dots.append((left + width * place / self.count + move, top + height * y))
            pen.line(dots, fill=self.color, width=2 * SCALE)
        elif self.kind == "heat":
            for column in range(12):
                for row in range(8):
                    value = chance.random() + self.noise * moves.uniform(-1, 1)
                    value = 0.0 if column * 8 + row in self.missing else value
                    shade = max(0, min(255, round(255 * value)))
                    x, y = left + width * column / 12, top + height * row / 8
                    pen.rectangle((x, y, x + width / 12, y + height / 8), fill=(shade, 80, 255 - shade))
        else:
            for place in range(self.count):
                x, y = chance.random(), chance.random()
                x, y = x + self.noise * moves.uniform(-1, 1), y + self.noise * moves.uniform(-1, 1)
                if place not in self.missing:
                    dot = left + width * x + move, top + height * y
                    size = self.radius * SCALE
                    pen.ellipse((dot[0] - size, dot[1] - size, dot[0] + size, dot[1] + size), fill=self.color)

    def png(self) -> str:
        return encoded(self.image(), "PNG")

    def jpeg(self, quality: int = 90) -> str:
        return encoded(self.image().convert("RGB"), "JPEG", quality=quality)


def encoded(image: Image.Image, form: str, **options: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return base64.b64encode(buffer.getvalue()).decode()


def gray16(value: int, size: tuple[int, int] = (64, 64)) -> str:
    return encoded(Image.new("I;16", size, value), "PNG")


def bomb(width: int, height: int) -> str:
    """An image of few bytes and many pixels."""
    return encoded(Image.new("1", (width, height)), "PNG", compress_level=9)
