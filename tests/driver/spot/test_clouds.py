"""Answers of metadata servers, as the clouds document them and as they should never be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.driver.spot.clouds import (
    AWS_S,
    AZURE_S,
    FILE_S,
    aws_instance_action,
    aws_rebalance,
    azure_events,
    gcp_maintenance,
    gcp_preempted,
    trigger_file,
)
from raymega.driver.spot.notice import Answer, Reading, time_of

NOW = time_of("2026-11-29T16:20:00Z")
ACTION = {"action": "terminate", "time": "2026-11-29T16:22:00Z"}
EVENT = {
    "EventId": "602d9444", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["vm1"],
    "EventStatus": "Scheduled", "NotBefore": "Sun, 29 Nov 2026 16:20:40 GMT", "Description": "",
    "EventSource": "Platform", "DurationInSeconds": -1,
}  # fmt: skip
READERS = {
    "aws": lambda answer: aws_instance_action(answer, now=NOW),
    "rebalance": lambda answer: aws_rebalance(answer, now=NOW),
    "gcp": lambda answer: gcp_preempted(answer, now=NOW),
    "maintenance": lambda answer: gcp_maintenance(answer, now=NOW),
    "azure": lambda answer: azure_events(answer, machine="vm1", now=NOW),
}


def answer(body: object, *, status: int = 200, **headers: str) -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, body=text, headers=headers)


def azure(*events: object) -> Reading:
    return azure_events(answer({"DocumentIncarnation": 2, "Events": list(events)}), machine="vm1", now=NOW)


def left(reading: Reading) -> float:
    return reading.notice.by_t - NOW


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_aws_names_what_becomes_of_the_instance_and_when(action: str):
    reading = aws_instance_action(answer(ACTION | {"action": action}), now=NOW)
    assert (left(reading), action in reading.reason, reading.notice.is_hint) == (120.0, True, False)


def test_a_rebalance_is_a_hint():
    reading = aws_rebalance(answer({"noticeTime": "2026-11-29T16:19:00Z"}), now=NOW)
    assert reading.notice.is_hint


def test_gcp_says_true_half_a_minute_before():
    assert left(gcp_preempted(answer(b"TRUE"), now=NOW)) == 30.0
    assert gcp_preempted(answer(b"FALSE\n"), now=NOW).notice is None
    assert left(gcp_maintenance(answer(b"TERMINATE_ON_HOST_MAINTENANCE"), now=NOW)) == 60.0
    assert gcp_maintenance(answer(b"MIGRATE_ON_HOST_MAINTENANCE"), now=NOW).notice is None


def test_azure_speaks_of_several_machines_and_the_earliest_end_of_this_one_counts():
    other = EVENT | {"Resources": ["vm2"], "NotBefore": "Sun, 29 Nov 2026 16:20:05 GMT"}
    later = EVENT | {"EventId": "late", "EventType": "Reboot", "NotBefore": "Sun, 29 Nov 2026 16:30:00 GMT"}
    reading = azure(other, later, EVENT)
    assert (left(reading), reading.notice.ack) == (40.0, "602d9444")
    assert azure(other).notice is None
    assert azure(EVENT | {"EventType": "Freeze"}).notice is None
    assert left(azure(EVENT | {"EventStatus": "Started", "NotBefore": ""})) == AZURE_S


@pytest.mark.parametrize("skew_s", [-86400.0, -300.0, 300.0, 86400.0])
def test_a_clock_that_is_wrong_by_hours_moves_the_deadline_only_where_the_answer_has_no_date(skew_s: float):
    mine = NOW + skew_s
    dated = aws_instance_action(answer(ACTION, date="Sun, 29 Nov 2026 16:20:30 GMT"), now=mine)
    assert dated.notice.by_t - mine == 90.0
    assert aws_instance_action(answer(ACTION), now=mine).notice.by_t - mine == AWS_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", FILE_S), ("12.5", 12.5), ("2026-11-29T16:21:00Z", 60.0), ("soon", FILE_S), ("-4", FILE_S)],
)
def test_a_file_may_say_how_long(text: str, seconds: float):
    assert left(trigger_file(text, now=NOW)) == seconds


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 503])
def test_a_status_that_is_no_answer_is_no_notice(reader, status: int):
    assert reader(answer(ACTION, status=status)).notice is None


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"<html>", b'{"action": 3}', b'{"Events": [1, {}, null]}']
)
def test_a_malformed_answer_is_no_notice_and_says_why(reader, body: bytes):
    reading = reader(answer(body))
    assert (reading.notice, bool(reading.reason)) == (None, True)


@given(st.binary(max_size=60), st.sampled_from(sorted(READERS)))
def test_no_bytes_break_a_reader(body: bytes, name: str):
    READERS[name](answer(body))


@given(st.text(max_size=30))
def test_a_notice_of_aws_is_never_further_off_than_its_warning(when: str):
    assert 0.0 <= left(aws_instance_action(answer(ACTION | {"time": when}), now=NOW)) <= AWS_S + 5.0
