"""Documents of every kind that can be shown, and some that can't."""

from __future__ import annotations

import io
import time
from functools import lru_cache
from typing import Any

from PIL import Image, ImageDraw

from durableagents import Document
from runs.engine.gating.documents import JPEG, MARKDOWN, PDF, PNG, TEXT


def text(content: str = "Pay 100 USD to Acme.\n", name: str = "contract.txt", media_type: str = TEXT) -> Document:
    return Document(name, media_type, content)


def _pixels(words: str, size: tuple[int, int], color: Any = "white") -> Image.Image:
    picture = Image.new("RGB", size, color)
    ImageDraw.Draw(picture).text((40, 40), words, fill="black", font_size=48)
    return picture


def _written(picture: Image.Image, form: str, **more: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **more)
    return file.getvalue()


@lru_cache
def pdf_bytes(pages: int = 2, words: str = "Invoice 4711", size: tuple[int, int] = (620, 877), dots: int = 72) -> bytes:
    sheets = [_pixels(f"{words}, page {n}", size) for n in range(1, pages + 1)]
    then = time.gmtime(0)  # otherwise it changes every second
    more = {"append_images": sheets[1:], "resolution": dots, "creationDate": then, "modDate": then}
    return _written(sheets[0], "PDF", save_all=True, **more)


def pdf(pages: int = 2, words: str = "Invoice 4711", name: str = "invoice.pdf") -> Document:
    return Document(name, PDF, pdf_bytes(pages, words))


def png(words: str = "Receipt", size: tuple[int, int] = (400, 300), name: str = "receipt.png") -> Document:
    return Document(name, PNG, _written(_pixels(words, size), "PNG"))


def jpeg(name: str = "photo.jpg", size: tuple[int, int] = (400, 300), **more: Any) -> Document:
    return Document(name, JPEG, _written(_pixels("Photo", size), "JPEG", **more))


def broken_pdf(name: str = "invoice.pdf") -> Document:
    return Document(name, PDF, b"%PDF-1.7\nnothing of the kind")


__all__ = ["MARKDOWN", "broken_pdf", "jpeg", "pdf", "pdf_bytes", "png", "text"]
