"""The processor of this machine: what Linux says of it, and which vector instructions it has, in words."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_fp16": "AVX512-FP16",
    "amx_tile": "AMX",
    "asimd": "NEON",
    "asimdhp": "NEON with float16",
    "sve": "SVE",
}
"""By the flag that says that they are there."""


def cpu_facts() -> dict[str, str]:
    """What is in /proc/cpuinfo, of the last processor; nothing where there is no such file."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}


def processor_in_words(facts: Mapping[str, str]) -> str:
    """Its name, as far as it is known, and its vector instructions.

    >>> processor_in_words({"model name": "AMD EPYC", "flags": "fpu avx avx2"})
    'AMD EPYC with AVX2'
    >>> processor_in_words({"CPU part": "0xd0c", "Features": "fp asimd"}) == f"{platform.machine()} 0xd0c with NEON"
    True
    """
    name = facts.get("model name") or " ".join((platform.machine(), *filter(None, [facts.get("CPU part")])))
    flags = {*facts.get("flags", "").split(), *facts.get("Features", "").split()}
    sets = [word for flag, word in _SETS.items() if flag in flags]
    return f"{name} with {', '.join(sets)}" if sets else name
