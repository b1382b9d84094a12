"""Where notices come from: a look at each source is one question over HTTP, or at a file. Thin; `clouds` reads.

    AWS      token by PUT, then GET; a token that is refused is asked for once more
    GCP      GET that hangs until the value changes, at most a minute; the first one answers at once
    Azure    GET; POST once the machine may go
    file     is it there?

No look raises and none takes longer than its limit: what fails is a Reading without a notice that says why, and leaves
nothing behind. Base addresses are arguments. Metadata servers are asked directly, whatever proxies the environment
names, and send nobody elsewhere.
"""

import http.client
import json
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from raymega.driver.spot.clouds import (
    aws_instance_action,
    aws_rebalance,
    azure_events,
    gcp_maintenance,
    gcp_preempted,
    trigger_file,
)
from raymega.driver.spot.notice import Answer, Notice, Reading, nothing

AWS_BASE, GCP_BASE, AZURE_BASE = "http://169.254.169.254", "http://metadata.google.internal", "http://169.254.169.254"
LIMIT_S = 2.0
HANG_S = 60
TOKEN_S = 3600
NO_ANSWER = 0  # in the place of a status
UNDERSTOOD = (200, 404)
MOST_BYTES = 2**20  # of an answer; a notice is a few hundred
MACHINE = re.compile(r"[\w.-]{1,80}")  # a name that Azure gives
Read = Callable[..., Reading]


class Source(Protocol):
    """Somebody who may say that this machine is to go."""

    @property
    def name(self) -> str: ...
    def look(self) -> Reading:
        """Ask once."""

    def acknowledge(self, notice: Notice) -> None:
        """Say that the machine may go now."""


def ask(
    url: str, *, headers: Mapping[str, str], method: str = "GET", body: bytes | None = None, limit_s: float
) -> Answer:
    """One question, over by `limit_s` however it is answered. Without an answer the status is 0, the body says why."""
    where = urllib.parse.urlsplit(url)
    try:
        connection = http.client.HTTPConnection(where.netloc, timeout=limit_s)
        with closing(connection), _cut_off(connection, after_s=limit_s):
            connection.request(
                method, urllib.parse.urlunsplit(where._replace(scheme="", netloc="")), body, dict(headers)
            )
            found = connection.getresponse()
            return Answer(status=found.status, body=found.read(MOST_BYTES), headers=_lower(found.getheaders()))
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: what cannot be put into a question
        return Answer(status=NO_ANSWER, body=f"no answer: {error}".encode())


@contextmanager
def _cut_off(connection: http.client.HTTPConnection, *, after_s: float) -> Iterator[None]:
    """Connect, and hear no more after so long. Raises: TimeoutError if it was cut off."""
    connection.connect()
    wire, is_over = connection.sock, threading.Event()

    def cut() -> None:
        is_over.set()
        with suppress(OSError):  # it has just ended
            wire.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(after_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if is_over.is_set():
            raise TimeoutError(f"it was not whole after {after_s:g} s")


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


@dataclass(slots=True, kw_only=True)
class AwsSource:
    """Instance metadata, version 2; `hints`: rebalance recommendations count too."""

    base: str = AWS_BASE
    hints: bool = False
    limit_s: float = LIMIT_S
    name: str = "AWS"
    _token: str = field(default="", init=False)

    def look(self) -> Reading:
        reading = aws_instance_action(self._get("spot/instance-action"), now=time.time())
        if reading.notice is not None or not self.hints:
            return reading
        return aws_rebalance(self._get("events/recommendations/rebalance"), now=time.time())

    def acknowledge(self, notice: Notice) -> None:
        """AWS is told nothing."""

    def _get(self, path: str) -> Answer:
        url = f"{self.base}/latest/meta-data/{path}"
        self._token = self._token or self._new_token()
        answer = ask(url, headers=self._headers(), limit_s=self.limit_s)
        if answer.status == 401:  # it has lapsed
            self._token = self._new_token()
            answer = ask(url, headers=self._headers(), limit_s=self.limit_s)
        if answer.status not in UNDERSTOOD:
            self._token = ""  # whatever it is, it may be none
        return answer

    def _headers(self) -> dict[str, str]:
        return {"X-aws-ec2-metadata-token": self._token} if self._token else {}

    def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        answer = ask(f"{self.base}/latest/api/token", headers=headers, method="PUT", limit_s=self.limit_s)
        return answer.text if answer.status == 200 else ""


@dataclass(slots=True, kw_only=True)
class GcpSource:
    """One value of the metadata server, which is waited for until it changes."""

    path: str = "preempted"
    read: Read = gcp_preempted
    base: str = GCP_BASE
    hang_s: int = HANG_S
    limit_s: float = LIMIT_S
    _etag: str = field(default="", init=False)

    @property
    def name(self) -> str:
        return f"GCP {self.path}"

    def look(self) -> Reading:
        url = f"{self.base}/computeMetadata/v1/instance/{self.path}"
        if self._etag:
            wait = {"wait_for_change": "true", "timeout_sec": self.hang_s, "last_etag": self._etag}
            url = f"{url}?{urllib.parse.urlencode(wait)}"
        limit_s = self.limit_s + (self.hang_s if self._etag else 0)
        answer = ask(url, headers={"Metadata-Flavor": "Google"}, limit_s=limit_s)
        reading = self.read(answer, now=time.time())
        is_waited_for = answer.status == 200 and reading.notice is None
        self._etag = answer.headers.get("etag", "") if is_waited_for else ""
        return reading

    def acknowledge(self, notice: Notice) -> None:
        """GCP is told nothing."""


@dataclass(slots=True, kw_only=True)
class AzureSource:
    """Scheduled events of this machine, by the name that Azure has for it."""

    base: str = AZURE_BASE
    limit_s: float = LIMIT_S
    name: str = "Azure"
    _machine: str = field(default="", init=False)

    def look(self) -> Reading:
        self._machine = self._machine or self._own_name()
        answer = ask(self._url, headers={"Metadata": "true"}, limit_s=self.limit_s)
        return azure_events(answer, machine=self._machine or socket.gethostname(), now=time.time())

    def acknowledge(self, notice: Notice) -> None:
        """Azure need not wait for the time that it has named."""
        body = json.dumps({"StartRequests": [{"EventId": notice.ack}]}).encode()
        ask(self._url, headers={"Metadata": "true"}, method="POST", body=body, limit_s=self.limit_s)

    @property
    def _url(self) -> str:
        return f"{self.base}/metadata/scheduledevents?api-version=2020-07-01"

    def _own_name(self) -> str:
        url = f"{self.base}/metadata/instance/compute/name?api-version=2021-02-01&format=text"
        answer = ask(url, headers={"Metadata": "true"}, limit_s=self.limit_s)
        return answer.text if answer.status == 200 and MACHINE.fullmatch(answer.text) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A file that someone puts on the node."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def look(self) -> Reading:
        try:
            return trigger_file(self.path.read_text(encoding="utf-8", errors="replace"), now=time.time())
        except FileNotFoundError:
            return nothing("it is not there")
        except OSError as error:
            return nothing(f"it cannot be read: {error.strerror}")

    def acknowledge(self, notice: Notice) -> None:
        """Whoever has put it there sees that the node is left."""


def gcp_sources(base: str = GCP_BASE) -> tuple[GcpSource, ...]:
    """The two values of GCP that end a machine."""
    return (
        GcpSource(base=base),
        GcpSource(base=base, path="maintenance-event", read=gcp_maintenance),
    )
