"""Stand-in for torchvision.io (see the package)."""

from __future__ import annotations

from torchvision import refusing

__getattr__ = refusing(__name__)
