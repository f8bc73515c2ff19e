"""Stand-in for torchvision.transforms (see the package); `InterpolationMode` is read at import."""

from __future__ import annotations

import enum

from torchvision import refusing

__getattr__ = refusing(__name__)


class InterpolationMode(enum.Enum):
    """The names that transformers maps to PIL's resampling filters; values as in torchvision."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
