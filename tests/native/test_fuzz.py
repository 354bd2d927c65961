"""Random and hostile calls of the C interface, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from native_build import built

pytestmark = pytest.mark.slow


def test_no_call_crashes() -> None:
    library = built(f"-DGRANET_FUZZ={Path(__file__).parent / 'fuzz.cpp'}")
    # Sizes that are refused for lack of memory must be so as without sanitizers.
    settings = {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    ended = subprocess.run(
        [library.parent / "fuzz", "15", "1"], env={**os.environ, **settings}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
