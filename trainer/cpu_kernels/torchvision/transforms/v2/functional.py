"""Stand-in for torchvision.transforms.v2.functional (see the package)."""

from __future__ import annotations

from torchvision import refusing

__getattr__ = refusing(__name__)
