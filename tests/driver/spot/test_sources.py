"""Each source against a server on the loopback that answers as its cloud does, and as no cloud should."""

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from raymega.driver.spot.choosing import sources_of
from raymega.driver.spot.notice import Notice
from raymega.driver.spot.sources import AwsSource, AzureSource, FileSource, GcpSource, Source
from raymega.driver.spot.watching import SpotWatch
from tests.driver.spot.loopback import FAR, Cloud, serving
from tests.driver.spot.test_clouds import EVENT
from tests.waiting import eventually

LIMIT_S = 20.0
GOING: dict[str, object] = {
    "aws": {"action": "terminate", "time": FAR}, "gcp": "TRUE", "azure": {"DocumentIncarnation": 1, "Events": [EVENT]},
}  # fmt: skip
SOURCES: dict[str, Callable[..., Source]] = {
    "aws": lambda base, **more: AwsSource(base=base, **more),
    "gcp": lambda base, **more: GcpSource(base=base, **more),
    "azure": lambda base, **more: AzureSource(base=base, **more),
}


class Recorder:
    """In the place of Ray's drain."""

    def __init__(self, *refusals: str) -> None:
        self.notices: queue.SimpleQueue[tuple[str, Notice]] = queue.SimpleQueue()
        self._refusals = list(refusals)

    def __call__(self, source: Source, notice: Notice) -> str:
        self.notices.put((source.name, notice))
        return self._refusals.pop(0) if self._refusals else ""


@pytest.fixture(params=SOURCES)
def cloud(request) -> Iterator[Cloud]:
    with serving(request.param) as served:
        yield served
    assert watching() == []


def watched(cloud: Cloud, leave: Recorder) -> SpotWatch:
    failures: list[BaseException] = []
    return SpotWatch([SOURCES[cloud.kind](cloud.base)], leave=leave, failed=failures.append, poll_s=0.02)


def closed(watch: SpotWatch, cloud: Cloud) -> None:
    watch.close()
    cloud.say(cloud.value)
    eventually(lambda: watching() == [], limit_s=LIMIT_S)


def watching() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("notices")]


def test_a_notice_is_told_once_as_soon_as_the_cloud_says_it(cloud: Cloud):
    recorder = Recorder()
    watch = watched(cloud, recorder)
    began = time.time()
    cloud.say(GOING[cloud.kind])
    name, notice = recorder.notices.get(timeout=LIMIT_S)
    assert name.lower().startswith(cloud.kind)
    assert 0 < notice.by_t - began <= 121.0
    asked = len(cloud.asked)
    eventually(lambda: len(cloud.asked) > asked + 2, limit_s=LIMIT_S)
    closed(watch, cloud)
    assert recorder.notices.empty()


def test_what_ray_does_not_take_is_told_again(cloud: Cloud):
    recorder = Recorder("no such call")
    cloud.say(GOING[cloud.kind])
    watch = watched(cloud, recorder)
    told = [recorder.notices.get(timeout=LIMIT_S)[1].cause]
    told.append(recorder.notices.get(timeout=LIMIT_S)[1].cause)
    closed(watch, cloud)
    assert told[0] == told[1]


@pytest.mark.parametrize("status", [404, 429, 500, 503])
def test_a_server_that_fails_is_no_notice_and_one_that_recovers_is_heard(cloud: Cloud, status: int):
    source = SOURCES[cloud.kind](cloud.base)
    cloud.say("{", status=status)
    assert source.look().notice is None
    cloud.say(b"\xff{[", status=200)
    assert source.look().notice is None
    cloud.say(GOING[cloud.kind])
    assert source.look().notice is not None


PAGE = b"<!doctype html>\n<html>\n<body>Please log in</body>\n</html>\n"
NONSENSE: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "a page": (200, PAGE, {"ETag": "x"}), "deep": (200, b'{"Events":' + b"[" * 90_000, {}),
    "huge": (200, b" " * 2**22, {}), "elsewhere": (302, b"", {"Location": "http://[nowhere/"}),
    "back": (307, b"", {"Location": "/latest/api/token"}), "letters": (200, "\u20ac\x00".encode(), {"Date": "when"}),
    "nothing": (200, b"", {}), "number": (200, b"9" * 5000, {}),
}  # fmt: skip


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_whatever_a_server_says_instead_is_no_notice_and_once_it_is_itself_again_it_is_heard(cloud: Cloud, nonsense):
    source = SOURCES[cloud.kind](cloud.base, limit_s=LIMIT_S)
    cloud.instead = nonsense
    for _ in range(2):
        assert source.look().notice is None
    cloud.instead = None
    cloud.say(GOING[cloud.kind])
    source.look()
    assert source.look().notice is not None


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.0 200 OK\r\n\r\nTRUE"])
def test_an_answer_that_trickles_in_is_cut_off(make, begins: bytes):
    with trickling(begins) as base:
        began = time.monotonic()
        reading = make(base, limit_s=0.2).look()
        assert (reading.notice, "not whole after 0.2 s" in reading.reason) == (None, True)
        assert time.monotonic() - began < LIMIT_S / 2


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("base", ["169.254.169.254", "http://", "http://a b", "http://127.0.0.1:port", "file:///etc"])
def test_an_address_that_is_none_is_no_notice(make, base: str):
    assert make(base, limit_s=0.1).look().notice is None


@contextmanager
def trickling(begins: bytes) -> Iterator[str]:
    """A server that sends a letter after the other, as long as it is listened to."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    wire, _ = server.accept()
                except OSError:  # closed
                    return
                with wire, suppress(OSError):
                    wire.sendall(begins)
                    while wire.send(b"x"):
                        time.sleep(0.01)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_where_nobody_listens_or_nobody_answers_a_look_ends_without_a_notice(make):
    reading = make("http://127.0.0.1:9", limit_s=0.1).look()  # the discard port
    assert (reading.notice, "no answer" in reading.reason) == (None, True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert make(f"http://127.0.0.1:{silent.getsockname()[1]}", limit_s=0.1).look().notice is None
        assert time.monotonic() - began < LIMIT_S


def test_a_token_that_has_lapsed_is_asked_for_once_more():
    with serving("aws") as cloud:
        source = AwsSource(base=cloud.base)
        assert source.look().reason == "no interruption is planned"
        cloud.lapse()
        cloud.say(GOING["aws"])
        assert source.look().notice is not None
        assert [path for _, path in cloud.asked].count("/latest/api/token") == 2


def test_gcp_is_asked_once_at_once_and_then_for_a_change():
    with serving("gcp") as cloud:
        source = GcpSource(base=cloud.base)
        source.look()
        changing = threading.Timer(0.1, lambda: cloud.say("TRUE"))
        changing.start()
        assert source.look().notice is not None
        changing.join()
        assert "wait_for_change=true" in cloud.asked[1][1]


def test_azure_is_told_once_the_machine_may_go():
    with serving("azure") as cloud:
        cloud.say(GOING["azure"])
        source = AzureSource(base=cloud.base)
        source.acknowledge(source.look().notice)
        assert [json.loads(body) for body in cloud.posted] == [{"StartRequests": [{"EventId": "602d9444"}]}]


def test_a_file_is_a_notice_once_it_is_there(tmp_path: Path):
    source = FileSource(path=tmp_path / "leave")
    assert source.look().notice is None
    source.path.write_text("45")
    assert source.look().notice.by_t == pytest.approx(time.time() + 45.0, abs=2.0)
    assert FileSource(path=tmp_path).look().notice is None


@pytest.mark.parametrize(
    ("notices", "env", "vendor", "names"),
    [
        ("auto", {}, "Amazon EC2\n", ["AWS"]),
        ("auto", {}, "Google", ["GCP preempted", "GCP maintenance-event"]),
        ("auto", {}, "Microsoft Corporation", ["Azure"]),
        ("auto", {}, "Some Board Ltd", []),
        ("auto", {"GCE_METADATA_HOST": "127.0.0.1:1"}, "", ["GCP preempted", "GCP maintenance-event"]),
        ("azure", {}, "Amazon EC2", ["Azure"]),
        ("auto", {"RAYMEGA_LEAVE_FILE": "/run/leave"}, "Amazon EC2", ["AWS", "/run/leave"]),
    ],
)
def test_a_node_is_watched_by_what_the_config_its_board_and_its_environment_say(notices, env, vendor, names):
    assert [source.name for source in sources_of(notices, env=env, vendor=vendor)] == names
