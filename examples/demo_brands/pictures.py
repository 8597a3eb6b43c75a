"""Photographs with a logo on them: random crop, colours, plate, perspective, blur, light and noise."""

import functools
from pathlib import Path

import numpy as np
import skimage
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

IMAGE_SIZE = 112  # pixels, width and height
CANVAS = 2 * IMAGE_SIZE  # drawn at twice the size
MARGIN = 0.15  # of a logo's side, between it and the plate's edge
LEAST_CONTRAST = 80  # of 255, between the luminance of logo and plate
LUMINANCE = np.array([0.299, 0.587, 0.114])
# How far images are from a logo as it was drawn.
ROTATION = 12.5  # degrees at most
CORNERS = 0.08  # of the plate's side, each corner inwards at most
SIDES = (0.55, 0.9)  # of the image's side, that of the plate
BLUR = 0.8  # pixels at most
VISIBLE = 96  # of 255, from which opacity on a plate counts as seen
NOISE = 3.0  # of 255, standard deviation


@functools.cache
def photograph(name: str) -> Image.Image:
    """One of the photographs that come with scikit-image."""
    return Image.open(Path(skimage.__file__).parent / "data" / name).convert("RGB")


def picture(mask: Image.Image, photographs: tuple[str, ...], rng: np.random.Generator) -> Image.Image:
    """An RGB image, `IMAGE_SIZE` x `IMAGE_SIZE`; arguments as of `boxed_picture`."""
    return boxed_picture(mask, photographs, rng)[0]


def boxed_picture(
    mask: Image.Image,
    photographs: tuple[str, ...],
    rng: np.random.Generator,
    sides: tuple[float, float] = SIDES,
) -> tuple[Image.Image, list[float]]:
    """An RGB image, `IMAGE_SIZE` x `IMAGE_SIZE`, and the box [x1, y1, x2, y2] of its plate in pixels.

    Args:
        mask: The logo ("L").
        photographs: Names of those from which the background is taken.
        rng: Decides everything else.
        sides: The least and the largest side of the plate, as shares of the image's.
    """
    image = _background(photographs, rng)
    ink, plate = _colours(rng)
    place = _placement(mask.width * (1 + 2 * MARGIN), sides, rng)
    covers = [
        layer.transform(image.size, Image.Transform.PERSPECTIVE, place, Image.Resampling.BICUBIC)
        for layer in (_plate(mask, rng), _framed(mask))
    ]
    for colour, cover in zip((plate, ink), covers, strict=True):
        image.paste(colour, mask=cover)
    visible = covers[0].point(lambda value: 255 * (value > VISIBLE)).getbbox()
    visible = visible or (0, 0, 0, 0)  # an empty mask
    box = [side * IMAGE_SIZE / CANVAS for side in visible]
    image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 2 * BLUR)))
    image = image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.LANCZOS)
    image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.6, 1.3))
    noisy = np.asarray(image) + rng.normal(0, NOISE, (IMAGE_SIZE, IMAGE_SIZE, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), box


def _background(photographs: tuple[str, ...], rng: np.random.Generator) -> Image.Image:
    """A square part of a photograph, perhaps mirrored, more or less colourful."""
    whole = photograph(photographs[rng.integers(len(photographs))])
    side = int(min(whole.size) * rng.uniform(0.4, 0.95))
    left, top = rng.integers(whole.width - side + 1), rng.integers(whole.height - side + 1)
    part = whole.resize((CANVAS, CANVAS), box=(left, top, left + side, top + side))
    if rng.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return ImageEnhance.Color(part).enhance(rng.uniform(0.5, 1.5))


def _colours(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Colours of logo and plate that differ in luminance."""
    ink = rng.integers(0, 256, 3)
    while True:
        plate = rng.integers(0, 256, 3)
        if abs(float((ink - plate) @ LUMINANCE)) > LEAST_CONTRAST:
            return tuple(map(int, ink)), tuple(map(int, plate))


def _framed(mask: Image.Image) -> Image.Image:
    """The logo with a margin on each side."""
    edge = int(mask.width * MARGIN)
    frame = Image.new("L", (mask.width + 2 * edge, mask.height + 2 * edge))
    frame.paste(mask, (edge, edge))
    return frame


def _plate(mask: Image.Image, rng: np.random.Generator) -> Image.Image:
    """What the logo lies on: a plate with more or less round corners, or the outline of a sticker."""
    frame = _framed(mask)
    if rng.random() < 0.3:
        return frame.filter(ImageFilter.MaxFilter(15))
    plate = Image.new("L", frame.size)
    radius = (0, 0.14, 0.5)[rng.integers(3)] * frame.width
    box = (3, 3, frame.width - 4, frame.height - 4)
    ImageDraw.Draw(plate).rounded_rectangle(box, radius, fill=int(rng.integers(200, 256)))
    return plate


def _placement(side: float, sides: tuple[float, float], rng: np.random.Generator) -> list[float]:
    """Coefficients of PIL's perspective transform that puts a square of `side` pixels on the canvas."""
    angle = np.radians(rng.uniform(-ROTATION, ROTATION))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float)
    inwards = np.sign(0.5 - square) * rng.uniform(0, CORNERS, (4, 2))
    corners = (square + inwards - 0.5) @ turn.T
    corners *= CANVAS * rng.uniform(*sides) / np.ptp(corners, axis=0).max()
    low, high = -corners.min(axis=0), CANVAS - corners.max(axis=0)
    corners += rng.uniform(low, high)
    rows = [
        row
        for (x, y), (u, v) in zip(corners, square * side, strict=True)
        for row in ([x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y])
    ]
    return np.linalg.solve(np.array(rows), (square * side).ravel()).tolist()
