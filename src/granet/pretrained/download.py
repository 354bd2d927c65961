"""Where the file of a network is: beside its index, in the cache folder, or at a URL. Its SHA-256 is checked."""

from __future__ import annotations

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from granet.error_line import first_line
from granet.files import atomic, make_folder

FOLDER_VARIABLE = "GRANET_PRETRAINED"
URL_VARIABLE = "GRANET_PRETRAINED_URL"
DEFAULT_FOLDER = Path("~/.cache/granet/pretrained")
TIMEOUT = 60
"""Seconds without an answer."""
MOST = 1 << 26
"""Bytes that are read of an answer, some twenty times the largest file."""


def find_file(file: str, expected: str, *, beside: Path, url: str | None = None) -> Path:
    """The path of a file with the SHA-256 ``expected``, downloaded to the cache folder if it is in neither folder."""
    cache = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).expanduser()
    for path in (beside / file, cache / file):
        if path.is_file():
            _check(path, str(path), expected)
            return path
    url = url or os.environ.get(URL_VARIABLE)
    if not url:
        raise ValueError(
            f"{file}: is neither in {beside} nor in {cache}. Put it into the latter, which {FOLDER_VARIABLE} names, or "
            f"say where it can be downloaded from with url or {URL_VARIABLE}; there is no server that granet knows of"
        )
    make_folder(FOLDER_VARIABLE, cache)
    address = f"{url.rstrip('/')}/{file}"
    content = _download(url, address)
    with atomic(path) as temporary:
        temporary.write_bytes(content)
        _check(temporary, address, expected)
    return path


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _check(path: Path, where: str, expected: str) -> None:
    if (found := sha256(path)) != expected:
        raise ValueError(f"{where}: is another file than the index means, its SHA-256 is {found} and not {expected}")


def _download(url: str, address: str) -> bytes:
    """What is there, whole; ValueError that says in one line why it could not be had."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url={url!r}: must begin with http:// or https://")
    try:
        with urlopen(address, timeout=TIMEOUT) as answer:
            kind, length = answer.headers.get_content_type(), answer.length
            content: bytes = answer.read(MOST)
    except (OSError, HTTPException, ValueError) as error:  # of the status, the connection, what was said, the address
        if isinstance(error, HTTPError):  # which is the answer, too, and holds the connection
            error.close()
        raise ValueError(f"{address}: cannot be downloaded ({first_line(error)})") from error
    if length is not None and len(content) < min(length, MOST):
        raise ValueError(f"{address}: ended after {len(content):,} of {length:,} bytes")
    if kind == "text/html":
        raise ValueError(f"{address}: is an HTML page, not the file")
    return content
