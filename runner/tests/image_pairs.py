"""40 pairs of images. `python -m tests.image_pairs` prints the mean and the worst tile of each."""

from dataclasses import dataclass

from notebook_runner import images
from tests.drawings import Plot, bomb, gray16

POINTS, LINE, BARS, HEAT = Plot(), Plot("line", count=200), Plot("bars"), Plot("heat")
SMALL = Plot(size=(120, 90), radius=2)
CLEAR = Plot(background=None)


@dataclass(frozen=True)
class ImagePair:
    name: str
    golden: str
    run: str
    is_equal: bool
    mime: str = "image/png"


PAIRS = [
    ImagePair("the same points", POINTS.png(), POINTS.png(), True),
    ImagePair("the same line", LINE.png(), LINE.png(), True),
    ImagePair("the same bars", BARS.png(), BARS.png(), True),
    ImagePair("the same heat map", HEAT.png(), HEAT.png(), True),
    ImagePair("the same small plot", SMALL.png(), SMALL.png(), True),
    ImagePair("the same transparent plot", CLEAR.png(), CLEAR.png(), True),
    ImagePair("the same JPEG", POINTS.jpeg(), POINTS.jpeg(), True, "image/jpeg"),
    ImagePair("transparent and white background", CLEAR.png(), POINTS.png(), True),
    ImagePair("points with noise of 1e-5", POINTS.png(), POINTS.but(noise=1e-5).png(), True),
    ImagePair("a line with noise of 1e-4", LINE.png(), LINE.but(noise=1e-4).png(), True),
    ImagePair("bars with noise of 1e-3", BARS.png(), BARS.but(noise=1e-3).png(), True),
    ImagePair("a heat map with noise of 1e-3", HEAT.png(), HEAT.but(noise=1e-3).png(), True),
    ImagePair("a JPEG with another quality", POINTS.jpeg(95), POINTS.jpeg(93), True, "image/jpeg"),
    ImagePair("gray of 16 bits, one step", gray16(40_000), gray16(40_001), True),
    ImagePair("one point of 100 missing", POINTS.png(), POINTS.but(missing=(40,)).png(), False),
    ImagePair("another point of 100 missing", POINTS.png(), POINTS.but(missing=(7,)).png(), False),
    ImagePair("one point more", POINTS.but(missing=(12,)).png(), POINTS.png(), False),
    ImagePair("one point of 1000 missing", POINTS.but(count=1000, radius=2).png(),
              POINTS.but(count=1000, radius=2, missing=(500,)).png(), False),
    ImagePair("one small point missing", POINTS.but(radius=2).png(), POINTS.but(radius=2, missing=(3,)).png(), False),
    ImagePair("all points missing", POINTS.png(), POINTS.but(count=0).png(), False),
    ImagePair("points with noise of 1e-2", POINTS.png(), POINTS.but(noise=1e-2).png(), False),
    ImagePair("points of another seed", POINTS.png(), POINTS.but(seed=8).png(), False),
    ImagePair("points shifted by 2 pixels", POINTS.png(), POINTS.but(shift=2).png(), False),
    ImagePair("a line shifted by 3 pixels", LINE.png(), LINE.but(shift=3).png(), False),
    ImagePair("a line with a step", LINE.png(), LINE.but(missing=tuple(range(90, 110))).png(), False),
    ImagePair("a line with noise of 0.05", LINE.png(), LINE.but(noise=0.05).png(), False),
    ImagePair("a line of another color", LINE.png(), LINE.but(color="#d62728").png(), False),
    ImagePair("a bar of 8 becomes 8.1", BARS.png(), BARS.but(bar=8.1).png(), False),
    ImagePair("a bar of 8 becomes 9", BARS.png(), BARS.but(bar=9.0).png(), False),
    ImagePair("one cell of a heat map", HEAT.png(), HEAT.but(missing=(50,)).png(), False),
    ImagePair("a heat map with noise of 0.1", HEAT.png(), HEAT.but(noise=0.1).png(), False),
    ImagePair("another title", POINTS.png(), POINTS.but(title="precision").png(), False),
    ImagePair("a legend more", POINTS.png(), POINTS.but(legend=True).png(), False),
    ImagePair("another number of ticks", POINTS.png(), POINTS.but(ticks=5).png(), False),
    ImagePair("a black background", POINTS.png(), POINTS.but(background="black").png(), False),
    ImagePair("a small plot with a point missing", SMALL.png(), SMALL.but(missing=(1,)).png(), False),
    ImagePair("another size", POINTS.png(), POINTS.but(size=(641, 480)).png(), False),
    ImagePair("a cut file", POINTS.png(), POINTS.png()[: len(POINTS.png()) // 2 // 4 * 4], False),
    ImagePair("41 megapixels in few bytes", bomb(8200, 5000), bomb(8200, 5000), False),
    ImagePair("gray of 16 bits, both above 8 bits", gray16(20_000), gray16(60_000), False),
]  # fmt: skip


def figures(pair: ImagePair) -> images.Difference | str:
    try:
        return images.compare(pair.golden, pair.run, pair.mime)
    except images.ImageInvalid as error:
        return str(error)


def main() -> None:
    print(f"{'pair':<40} {'mean':>8} {'worst':>8}  expected")
    for pair in PAIRS:
        found = figures(pair)
        shown = f"{'':>17} " if isinstance(found, str) else f"{found.mean:8.4f} {found.worst:8.4f} "
        note = found if isinstance(found, str) else ""
        print(f"{pair.name:<40} {shown} {'equal' if pair.is_equal else 'different'} {note}".rstrip())


if __name__ == "__main__":
    main()
