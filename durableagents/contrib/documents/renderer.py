"""Render pages in a confined process that `rendering.py` starts. No module imports this one.

It reads a document from standard input, and writes one line of JSON, then the pictures.
"""

# Documents are untrusted and may exploit the library that reads them. So the process has no environment, no database,
# no writable files, and little memory and time.
#
#  python -I renderer.py application/pdf 3 4     the third and the fourth page, and the sizes of all

from __future__ import annotations

import ctypes
import io
import json
import math
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

import pypdfium2
from PIL import Image, ImageOps, UnidentifiedImageError

MAX_MEMORY = 1024 * 1024 * 1024  # bytes of address space
MAX_SECONDS = 20  # seconds of processor time
MAX_PAGES = 40
WIDTH = 1240  # width in pixels of a page: A4 at 150 dpi
MAX_PIXELS = 3_000_000  # limit of pixels of a drawn page
MAX_DECODED_PIXELS = 40_000_000  # limit of pixels of a decoded picture
MAX_SIDE = 15_000  # limit of a side: in points of a page, or in pixels of a drawn one
MIN_SCALE = 0.5  # minimum pixels per point, which is 36 dpi: below it small print can't be read
MIN_WIDTH = 1000  # minimum pixels of the narrower side of a reduced picture
_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
NOBODY = 65534
_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT = 38, 1
_XFA = (2, 3)  # kinds of forms whose content is not on the pages


class NotRenderable(Exception):
    """The document can't be shown. The message is a text to be put after the document's name."""


def confine() -> None:
    """Limit this process's memory, CPU time and files, and drop root's rights.

    The CPU limit ends the process even if its parent is gone.
    """
    for limit, value in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_CPU, MAX_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 16),
    ):
        resource.setrlimit(limit, (value, value))
    if os.geteuid() == 0:
        # Root in a container may not be allowed to change its account; then only the limits above apply.
        with suppress(OSError):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    if sys.platform == "linux":  # This comes last, because changing the account clears the parent-death signal.
        prctl = ctypes.CDLL(None).prctl
        prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def draw(media_type: str, content: bytes, first: int, last: int) -> tuple[dict[str, Any], list[bytes]]:
    """Return the document's facts, and the pages from `first` to `last` as PNG. Raises NotRenderable."""
    if media_type == "application/pdf":
        return _pdf(content, first, last)
    picture = _picture(media_type, content)
    return {"pages": [picture.size], "note": ""}, [_png(picture)] if first <= 1 <= last else []


def _pdf(content: bytes, first: int, last: int) -> tuple[dict[str, Any], list[bytes]]:
    try:
        pdf = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        # pdfium reports "Success" for a document without pages.
        why = "it has no pages" if "Success" in str(error) else _reason(error)
        raise NotRenderable(f"it can't be opened ({why})") from None
    if pdf.get_formtype() in _XFA:
        raise NotRenderable("it is an XFA form, whose content is not on its pages")
    if not 1 <= len(pdf) <= MAX_PAGES:
        raise NotRenderable(f"it has {len(pdf)} pages; at most {MAX_PAGES} can be shown")
    pdf.init_forms()
    sizes, drawn = [], []
    for n in range(len(pdf)):
        try:
            page = pdf[n]
            scale = _scale(*page.get_size())
            sizes.append([max(1, math.ceil(side * scale)) for side in page.get_size()])
            if first <= n + 1 <= last:
                picture = page.render(scale=scale, may_draw_forms=True).to_pil().convert("RGB")
                sizes[-1] = list(picture.size)
                drawn.append(_png(picture))
            page.close()
        except pypdfium2.PdfiumError as error:
            raise NotRenderable(f"its page {n + 1} can't be drawn ({_reason(error)})") from None
    attached = pdf.count_attachments()
    files = "a file that is" if attached == 1 else f"{attached} files that are"
    return {"pages": sizes, "note": f"It contains {files} not shown here." if attached else ""}, drawn


def _reason(error: Exception) -> str:
    return str(error).rstrip(".")[:300]


def _scale(width: float, height: float) -> float:
    """Return the scale that gives the standard width. Wider pages keep their size as far as the limits allow."""
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise NotRenderable(f"a page of it is {width:g} by {height:g} points large")
    room = min(math.sqrt(MAX_PIXELS / (width * height)), MAX_SIDE / max(width, height))
    scale = min(max(WIDTH / width, 1.0), room)
    if scale < MIN_SCALE:
        raise NotRenderable(f"a page of it is {width:g} by {height:g} points large, too large to be legible")
    return scale


def _picture(media_type: str, content: bytes) -> Image.Image:
    """Return only the picture that the file shows, without metadata or other content."""
    try:
        with Image.open(io.BytesIO(content), formats=[_FORMATS[media_type]]) as opened:
            if opened.width * opened.height > MAX_DECODED_PIXELS:
                raise NotRenderable(f"it has {opened.width} by {opened.height} pixels, which are too many")
            if getattr(opened, "n_frames", 1) != 1:
                raise NotRenderable("it contains several pictures, but only one would be shown")
            opened.load()
            visible = _on_checkerboard(ImageOps.exif_transpose(opened))
    except UnidentifiedImageError:
        raise NotRenderable(f"it can't be read (it is not a {_FORMATS[media_type]})") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise NotRenderable(f"it can't be read ({_reason(error)})") from None
    shrink = min(1.0, math.sqrt(MAX_PIXELS / (visible.width * visible.height)), MAX_SIDE / max(visible.size))
    if shrink == 1.0:
        return visible
    if shrink < MIN_SCALE and shrink * min(visible.size) < MIN_WIDTH:
        raise NotRenderable(f"it has {visible.width} by {visible.height} pixels, too long to be legible")
    return visible.resize((max(1, int(visible.width * shrink)), max(1, int(visible.height * shrink))))


def _on_checkerboard(picture: Image.Image) -> Image.Image:
    """Put transparent pictures on a checkerboard of two greys, so that content of any colour is visible."""
    if "A" not in picture.getbands() and "transparency" not in picture.info:
        return _eight_bits(picture).convert("RGB")
    over, behind = picture.convert("RGBA"), Image.new("RGB", picture.size, (255, 255, 255))
    side = 16
    grey = Image.new("L", (2 * side, 2 * side), 0)
    grey.paste(255, (0, 0, side, side))
    grey.paste(255, (side, side, 2 * side, 2 * side))
    for x in range(0, picture.width, 2 * side):
        for y in range(0, picture.height, 2 * side):
            behind.paste((190, 190, 190), (x, y), grey)
    behind.paste(over, (0, 0), over)
    return behind


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Scale 16-bit greys to 8 bits. Pillow would clip them to white."""
    if picture.mode.startswith("I"):
        return picture.convert("F").point(lambda value: value * (255 / 65535)).convert("L")
    return picture


def _png(picture: Image.Image) -> bytes:
    """Return only the pixels as PNG, without the file's metadata."""
    bare = Image.new("RGB", picture.size)
    bare.paste(picture)
    written = io.BytesIO()
    bare.save(written, "PNG", compress_level=6)
    return written.getvalue()


def main() -> None:
    media_type, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    Image.MAX_IMAGE_PIXELS = MAX_DECODED_PIXELS
    Image.init()
    confine()
    pictures: list[bytes] = []
    try:
        answer, pictures = draw(media_type, sys.stdin.buffer.read(), first, last)
    except NotRenderable as why:
        answer = {"problem": str(why)}
    except MemoryError:
        answer = {"problem": "it needs more memory than allowed"}
    answer |= {"lengths": [len(picture) for picture in pictures]}
    out = sys.stdout.buffer
    out.write(json.dumps(answer).encode() + b"\n")
    for picture in pictures:
        out.write(picture)
    out.flush()


if __name__ == "__main__":
    main()
