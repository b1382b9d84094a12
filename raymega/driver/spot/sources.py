"""Where notices come from: a look at each source is one question over HTTP, or at a file. Thin; `clouds` reads.

    AWS      token by PUT, then GET; a token that is refused is asked for once more
    GCP      GET that hangs until the value changes, at most a minute; the first one answers at once
    Azure    GET; POST once the machine may go
    file     is it there?

No look raises and none takes longer than its limit: what fails is a Reading without a notice that says why. Base
addresses are arguments. Metadata servers are asked directly, whatever proxies the environment names.
"""

import http.client
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
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
    """One question. Without an answer the status is 0, and the body says why."""
    request = urllib.request.Request(url, headers=dict(headers), method=method, data=body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=limit_s) as found:
            return Answer(status=found.status, body=found.read(), headers=_lower(found.headers.items()))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(status=error.code, headers=_lower(error.headers.items()))
    except (OSError, http.client.HTTPException) as error:
        return Answer(status=NO_ANSWER, body=f"no answer: {error}".encode())


def _lower(headers: object) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}  # type: ignore[attr-defined]


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
        return azure_events(answer, machine=self._machine, now=time.time())

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
        return answer.text if answer.status == 200 and answer.text else socket.gethostname()


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
