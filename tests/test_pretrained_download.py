"""The file of a trained network comes from a checkout, the cache folder or a server, and only if it is the right one.

The server is a real one, in a thread of this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import granet
from granet.cli import main
from granet.models import create_model
from granet.pretrained import INDEX, load_from

Answer = Callable[[BaseHTTPRequestHandler], None]
FILE = "tiny.safetensors"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an index of one network, as an installation has it; there is nothing in the cache folder."""
    monkeypatch.setenv("GRANET_PRETRAINED", str(tmp_path / "cache"))
    monkeypatch.delenv("GRANET_PRETRAINED_URL", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    model = create_model("digits_net", num_classes=10, in_channels=1)
    granet.save(model, tmp_path / FILE)
    content = (tmp_path / FILE).read_bytes()
    known = {"name": "tiny", "file": FILE, "model": "digits_net", "data": "digits", "classes": 10, "method": "granet"}
    figures = {"sparsity": 0.0, "seed": 0, "accuracy_last": 10.0, "run": "r", "size": len(content)}
    figures |= {"channels": 1, "side": 8}
    (tmp_path / "installed").mkdir()
    index = [{**known, **figures, "sha256": hashlib.sha256(content).hexdigest()}]
    (tmp_path / "installed" / INDEX).write_text(json.dumps(index))
    return tmp_path / "installed"


@pytest.fixture
def content(folder: Path) -> bytes:
    return (folder.parent / FILE).read_bytes()


@pytest.fixture
def cache(folder: Path) -> Path:
    return folder.parent / "cache"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Starts a server that answers each request in this way, and gives its address."""
    servers = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *arguments: object) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def answering(
    body: bytes, status: int = 200, kind: str = "application/octet-stream", length: int | None = None
) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body) if length is None else length))
        request.end_headers()
        request.wfile.write(body)

    return answer


def refusal(folder: Path, url: str | None) -> str:
    with pytest.raises(ValueError) as error:
        load_from(folder, "tiny", url)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_right_file_is_kept_and_asked_for_once(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str]
) -> None:
    asked: list[str] = []
    url = serve(lambda request: (asked.append(request.path), answering(content)(request))[1])
    first, again = (load_from(folder, "tiny", f"{url}/networks/") for _ in range(2))
    assert asked == [f"/networks/{FILE}"]
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {FILE: content}
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    assert not first.training


def test_the_address_may_come_from_the_environment(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRANET_PRETRAINED_URL", serve(answering(content)))
    load_from(folder, "tiny")
    assert (cache / FILE).read_bytes() == content


def test_a_file_beside_the_index_needs_no_cache_and_no_server(folder: Path, cache: Path, content: bytes) -> None:
    (folder / FILE).write_bytes(content)
    load_from(folder, "tiny", "http://127.0.0.1:9")
    assert not cache.exists()


def test_the_cache_folder_is_in_the_home_folder_by_default(
    folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRANET_PRETRAINED")
    monkeypatch.setenv("HOME", str(folder.parent))
    (kept := folder.parent / ".cache" / "granet" / "pretrained").mkdir(parents=True)
    (kept / FILE).write_bytes(content)
    assert not load_from(folder, "tiny").training


def test_without_a_file_and_an_address_it_says_where_it_looked(folder: Path, cache: Path) -> None:
    said = refusal(folder, None)
    assert said.startswith(f"{FILE}: is neither in {folder} nor in {cache}. ")
    assert "GRANET_PRETRAINED names" in said and "url or GRANET_PRETRAINED_URL" in said
    assert "there is no server that granet knows of" in said


@pytest.mark.parametrize("place", ["installed", "cache", "server"])
def test_another_file_is_refused_with_both_checksums(
    place: str, folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str]
) -> None:
    other = content[:-1] + bytes([content[-1] ^ 1])
    url = serve(answering(other))
    where = f"{url}/{FILE}"
    if place != "server":
        path = folder.parent / place / FILE
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(other)
        where = str(path)
    found, expected = (hashlib.sha256(one).hexdigest() for one in (other, content))
    assert (
        refusal(folder, url)
        == f"{where}: is another file than the index means, its SHA-256 is {found} and not {expected}"
    )
    assert place != "server" or list(cache.iterdir()) == []


def test_a_download_that_is_cut_off_leaves_nothing(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str]
) -> None:
    url, half = serve(answering(content[: len(content) // 2], length=len(content))), len(content) // 2
    assert refusal(folder, url) == f"{url}/{FILE}: ended after {half:,} of {len(content):,} bytes"
    assert list(cache.iterdir()) == []


def test_a_download_in_chunks_that_is_cut_off_leaves_nothing(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str]
) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"%x\r\n" % len(content) + content[:100])
        request.close_connection = True

    url = serve(answer)
    assert refusal(folder, url).startswith(f"{url}/{FILE}: cannot be downloaded (IncompleteRead(")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answering(b"<html>sign in</html>", kind="text/html; charset=utf-8"), "is an HTML page, not the file"),
        (answering(b"<html>", status=404, kind="text/html"), "cannot be downloaded (HTTP Error 404: Not Found)"),
        (answering(b"", status=503), "cannot be downloaded (HTTP Error 503: Service Unavailable)"),
        (lambda request: request.wfile.write(b"no HTTP at all\r\n"), "cannot be downloaded (no HTTP at all)"),
        (lambda request: None, "cannot be downloaded (Remote end closed connection without response)"),
    ],
)
def test_what_is_no_file_is_named(
    answer: Answer, says: str, folder: Path, cache: Path, serve: Callable[[Answer], str]
) -> None:
    url = serve(answer)
    assert refusal(folder, url) == f"{url}/{FILE}: {says}"
    assert list(cache.iterdir()) == []


def test_a_server_that_never_answers_is_given_up(
    folder: Path, cache: Path, serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("granet.pretrained.download.TIMEOUT", 0.2)
    done = threading.Event()
    url = serve(lambda request: done.wait(10) and None)
    assert refusal(folder, url) == f"{url}/{FILE}: cannot be downloaded (timed out)"
    done.set()
    assert list(cache.iterdir()) == []


def test_a_refused_connection_takes_one_line(folder: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert re.fullmatch(rf"{url}/{FILE}: cannot be downloaded \(.*Connection refused.*\)", refusal(folder, url))


@pytest.mark.parametrize("url", ["ftp://a", "file:///etc", "networks", "a b"])
def test_an_address_that_is_none_is_refused(url: str, folder: Path) -> None:
    assert refusal(folder, url) == f"url={url!r}: must begin with http:// or https://"


@pytest.mark.parametrize("url", ["http://", "http://a b", "https://[", "http://host:port"])
def test_an_address_without_a_host_takes_one_line(url: str, folder: Path) -> None:
    assert refusal(folder, url).startswith(f"{url.rstrip('/')}/{FILE}: cannot be downloaded (")


def test_a_cache_folder_that_cannot_be_written_is_named(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str]
) -> None:
    cache.write_text("a file")
    asked: list[str] = []
    url = serve(lambda request: asked.append(request.path))
    said = f"GRANET_PRETRAINED={str(cache)!r}: must be a folder that can be written to (File exists)"
    assert refusal(folder, url) == said
    assert asked == [] and cache.read_text() == "a file"


def test_a_disk_that_fills_up_leaves_nothing(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        path.open("wb").close()
        raise OSError(28, "No space left on device", str(path))

    url = serve(answering(content))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        load_from(folder, "tiny", url)
    assert error.value.filename == str(cache / FILE) and list(cache.iterdir()) == []


def test_the_command_fetches_a_file_and_says_where_it_is(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pretrained", "--folder", str(folder)])  # the list needs no files
    assert " tiny " in capsys.readouterr().out
    main(["pretrained", "--folder", str(folder), "--fetch", "tiny", "--url", serve(answering(content))])
    assert capsys.readouterr().out == f"{cache / FILE}\n"
    assert (cache / FILE).read_bytes() == content


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--fetch", "tiny"), rf"{FILE}: is neither in .*"),
        (("--fetch", "tiny", "--url", "networks"), "url='networks': must begin with http:// or https://"),
        (("--fetch", "tini"), "name='tini': must be known; the nearest is 'tiny'"),
        (("--url", "http://a"), r"url='http://a': must be given with fetch, the network to download"),
    ],
)
def test_the_command_ends_with_one_line(
    options: tuple[str, ...], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["pretrained", "--folder", str(folder), *options])
    assert stop.value.code == 2 and re.fullmatch(f"granet: {says}\n", capsys.readouterr().err)


@pytest.mark.slow
def test_processes_that_download_at_once_do_no_harm(
    folder: Path, cache: Path, content: bytes, serve: Callable[[Answer], str]
) -> None:
    """Neither gets an answer before both have asked, and both get it in small pieces."""
    both = threading.Barrier(2, timeout=60)

    def answer(request: BaseHTTPRequestHandler) -> None:
        both.wait()
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        for begin in range(0, len(content), 1000):
            request.wfile.write(content[begin : begin + 1000])

    command = [sys.executable, "-m", "granet", "pretrained", "--folder", str(folder), "--fetch", "tiny"]
    environment = os.environ | {
        "PYTHONPATH": str(Path(granet.__file__).parents[1]),
        "GRANET_PRETRAINED_URL": serve(answer),
    }
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert [one.communicate(timeout=120)[0] for one in started] == [f"{cache / FILE}\n"] * 2
        assert [one.returncode for one in started] == [0, 0]
    finally:
        for one in started:
            one.kill()
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {FILE: content}
