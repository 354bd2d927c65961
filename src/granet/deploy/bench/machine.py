"""What measurements must name: the machine, its load, and the versions of everything that was compared."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from granet import __version__
from granet.deploy.engines import processors
from granet.deploy.processor import cpu_facts, processor_in_words

_PACKAGES = ("torch", "onnxruntime", "openvino")


def machine() -> dict[str, Any]:
    """For JSON. The load counts the processes that wanted a processor in the last minute."""
    return {
        "processor": processor_in_words(cpu_facts()),
        "processors": processors(),
        "system": platform.platform(terse=True),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "granet": __version__,
        **{name: found for name in _PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
