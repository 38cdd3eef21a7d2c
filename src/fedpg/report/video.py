"""Films: pictures of environments side by side, as MP4 (imageio and its ffmpeg) and GIF (Pillow), both in the extra `video`."""

import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.errors import UserError

INK, PAPER, FADED = (32, 36, 44), (255, 255, 255), (140, 146, 156)
CART, POLE, AXLE = (0, 114, 178), (213, 94, 0), (32, 36, 44)
"""Blue and vermillion of Okabe and Ito, which colour-blind people can tell apart."""
SIZE = (240, 150)
"""Width and height of a drawn CartPole, pixels."""
LABEL = 22
"""Height of the line of text above a picture, pixels."""
LARGEST_GIF = 160
"""Frames of a GIF at most; longer films are thinned out."""


class Tile(NamedTuple):
    """One picture of a frame: (H, W, 3) uint8, the text above it, and whether its episode has ended."""

    picture: np.ndarray
    label: str
    ended: bool = False


def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise UserError("videos need Pillow and imageio: pip install 'fedpg[video]'") from None
    return Image, ImageDraw, ImageFont


def cartpole(state: np.ndarray, constants: Any) -> np.ndarray:
    """A CartPole in `state` (x, x_dot, theta, theta_dot): a cart on a track that ends where the episode does, and its pole to scale."""
    image_module, draw_module, _ = _pillow()
    scale = 2  # drawn twice as large and shrunk: smooth edges
    width, height = SIZE[0] * scale, SIZE[1] * scale
    image = image_module.new("RGB", (width, height), PAPER)
    draw = draw_module.Draw(image)
    metre, ground = width / (2.3 * float(constants.x_threshold)), 0.82 * height
    x, angle = width / 2 + float(state[0]) * metre, float(state[2])
    edge = float(constants.x_threshold) * metre
    draw.line([(width / 2 - edge, ground), (width / 2 + edge, ground)], fill=FADED, width=2 * scale)
    for side in (-1, 1):
        draw.line(
            [(width / 2 + side * edge, ground - 8 * scale), (width / 2 + side * edge, ground + 8 * scale)], fill=FADED, width=2 * scale
        )
    draw.rounded_rectangle([x - 17 * scale, ground - 18 * scale, x + 17 * scale, ground - 2 * scale], 3 * scale, fill=CART)
    length = min(2.0 * float(constants.length) * metre, 0.66 * height)  # the constant is half the length
    axle = (x, ground - 16 * scale)
    tip = (axle[0] + length * math.sin(angle), axle[1] - length * math.cos(angle))
    draw.line([axle, tip], fill=POLE, width=6 * scale)
    for place, radius in ((axle, 3 * scale), (tip, 3 * scale)):
        colour = AXLE if place is axle else POLE
        draw.ellipse([place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius], fill=colour)
    return np.asarray(image.reduce(scale))


def frame(rows: list[list[Tile]], titles: list[str]) -> np.ndarray:
    """Tiles in rows, each row under its title, with even width and height as video formats need."""
    image_module, draw_module, font_module = _pillow()
    height, width = rows[0][0].picture.shape[:2]
    font, gap, head = font_module.load_default(13), 6, LABEL if any(titles) else 0
    whole = (len(rows[0]) * (width + gap) + gap, len(rows) * (height + LABEL + head + gap) + gap)
    image = image_module.new("RGB", (whole[0] + whole[0] % 2, whole[1] + whole[1] % 2), PAPER)
    draw = draw_module.Draw(image)
    for r, (row, title) in enumerate(zip(rows, titles, strict=True)):
        top = gap + r * (height + LABEL + head + gap)
        if head:
            draw.text((gap + 2, top + 2), title, fill=INK, font=font_module.load_default(15))
        for c, tile in enumerate(row):
            left = gap + c * (width + gap)
            draw.text((left + 2, top + head + 3), tile.label, fill=FADED if tile.ended else INK, font=font)
            picture = tile.picture.astype(np.float32)
            picture = picture if not tile.ended else 0.35 * picture + 0.65 * 255.0
            image.paste(image_module.fromarray(picture.astype(np.uint8)), (left, top + head + LABEL))
            draw.rectangle([left, top + head + LABEL, left + width - 1, top + head + LABEL + height - 1], outline=(208, 212, 218))
    return np.asarray(image)


def write_mp4(frames: list[np.ndarray], path: Path, fps: float) -> Path:
    """Writes an MP4 (H.264) that every browser plays."""
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 - without it imageio's own error is many lines
    except ImportError:
        raise UserError("videos need imageio and imageio-ffmpeg: pip install 'fedpg[video]'") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"codec": "libx264", "macro_block_size": 2, "quality": 7, "ffmpeg_log_level": "error"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # the child becomes ffmpeg at once and never enters JAX
        with imageio.get_writer(path, fps=fps, **settings) as writer:
            for picture in frames:
                writer.append_data(picture)
    return path


def write_gif(frames: list[np.ndarray], path: Path, fps: float) -> Path:
    """Writes an endless GIF of at most `LARGEST_GIF` frames, at the speed of the film."""
    image_module, _, _ = _pillow()
    every = max(1, math.ceil(len(frames) / LARGEST_GIF), math.ceil(fps / 25.0))
    pictures = [image_module.fromarray(picture) for picture in frames[::every]]
    # One palette for the whole film, made from pictures at both ends of it and between: a palette for each takes longer than drawing them.
    sample = np.concatenate([np.asarray(pictures[i]) for i in sorted({0, len(pictures) // 2, len(pictures) - 1})])
    palette = image_module.fromarray(sample).quantize(48)
    chosen = [picture.quantize(palette=palette, dither=image_module.Dither.NONE) for picture in pictures]
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen[0].save(path, save_all=True, append_images=chosen[1:], duration=round(1000.0 * every / fps), loop=0, optimize=True)
    return path


def require_display() -> None:
    """Refuses to go on where no window can be opened."""
    try:
        import tkinter

        tkinter.Tk().destroy()
    except Exception as error:  # no display, or Python without Tk
        raise UserError(f"--live needs a display: {str(error).splitlines()[0]}; leave it out and open the MP4") from None


def show(path: Path) -> None:
    """Shows a GIF in a window, again and again, until the window is closed."""
    import tkinter

    image_module, _, _ = _pillow()
    from PIL import ImageSequence, ImageTk

    window = tkinter.Tk()
    window.title(path.name)
    film = image_module.open(path)
    frames = [
        (ImageTk.PhotoImage(one.convert("RGB"), master=window), int(one.info.get("duration", 40))) for one in ImageSequence.Iterator(film)
    ]
    label = tkinter.Label(window)
    label.pack()

    def turn(i: int) -> None:
        picture, milliseconds = frames[i % len(frames)]
        label.configure(image=picture)
        window.after(milliseconds, turn, i + 1)

    turn(0)
    window.mainloop()
