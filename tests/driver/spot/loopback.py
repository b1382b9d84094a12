"""Metadata servers on the loopback that answer as the clouds do; what they say can be changed while they run."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FAR = "2099-01-01T00:00:00Z"
HANG_LIMIT_S = 20.0


class Cloud:
    """What a server answers. `asked`: (method, path) of every request; `posted`: bodies."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.asked: list[tuple[str, str]] = []
        self.posted: list[bytes] = []
        self.tokens = 0
        self.changed = threading.Condition()
        self.value: object = "FALSE" if kind == "gcp" else None
        self.status = 200
        self.instead: tuple[int, bytes, dict[str, str]] | None = None  # of whatever is asked
        self.base = ""

    def say(self, value: object, *, status: int = 200) -> None:
        """Answer with `value` from now on; None: there is nothing."""
        with self.changed:
            self.value, self.status = value, status
            self.changed.notify_all()

    def lapse(self) -> None:
        """No token that was given is good any more."""
        self.tokens += 1000

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        self.asked.append((method, path))
        if self.instead is not None:
            return self.instead
        return getattr(self, f"_{self.kind}")(method, urlsplit(path), headers, body)

    def _aws(self, method, url, headers, body):
        if url.path == "/latest/api/token":
            known = method == "PUT" and "x-aws-ec2-metadata-token-ttl-seconds" in headers
            return (200, f"token-{self.tokens}".encode(), {}) if known else (400, b"", {})
        if headers.get("x-aws-ec2-metadata-token") != f"token-{self.tokens}":
            return 401, b"", {}
        if self.value is None or not url.path.endswith("spot/instance-action"):
            return 404, b"", {}
        return self.status, self._bytes(), {}

    def _gcp(self, method, url, headers, body):
        if headers.get("metadata-flavor") != "Google":
            return 403, b"", {}
        if not url.path.endswith("/preempted"):
            return 200, b"NONE", {"ETag": "none"}
        asked = parse_qs(url.query)
        with self.changed:
            if asked.get("last_etag") == [self._etag()]:
                self.changed.wait(timeout=min(HANG_LIMIT_S, float(asked["timeout_sec"][0])))
            return self.status, self._bytes(), {"ETag": self._etag()}

    def _azure(self, method, url, headers, body):
        if headers.get("metadata") != "true":
            return 400, b"", {}
        if url.path.endswith("/compute/name"):
            return 200, b"vm1", {}
        if method == "POST":
            self.posted.append(body)
            return 200, b"", {}
        return self.status, self._bytes() if self.value is not None else b'{"Events": []}', {}

    def _etag(self) -> str:
        return str(abs(hash((str(self.value), self.status))))

    def _bytes(self) -> bytes:
        if isinstance(self.value, bytes):
            return self.value
        return (self.value if isinstance(self.value, str) else json.dumps(self.value)).encode()


@contextmanager
def serving(kind: str) -> Iterator[Cloud]:
    """A server of this kind, for the time of the block."""
    cloud = Cloud(kind)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text, more = cloud.answer(self.command, self.path, headers, body)
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(text)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = _serve

        def log_message(self, *words: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    cloud.base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield cloud
    finally:
        cloud.say(cloud.value)  # whoever hangs gets an answer
        server.shutdown()
        server.server_close()
        thread.join()
