"""How each cloud says that a machine is to go: bytes -> Reading. Pure.

    AWS     spot/instance-action     404, or {"action": "terminate", "time": "2026-11-29T16:22:00Z"}         120 s
            recommendations/rebalance   404, or {"noticeTime": ".."}                                         a hint
    GCP     preempted                FALSE | TRUE                                                             30 s
            maintenance-event        NONE | MIGRATE_ON_HOST_MAINTENANCE | TERMINATE_ON_HOST_MAINTENANCE       60 s
    Azure   scheduledevents          {"Events": [{"EventType": "Preempt", "Resources": ["vm1"], ..}]}        30 s, more
    file    it is there              empty, seconds, or a time

Source: each cloud's pages on its metadata server. Whatever is not understood is no notice, with the reason: a machine
that goes without one is repaired like any other loss.
"""

import json
from typing import Any

from raymega.config.fault import counted
from raymega.driver.spot.notice import Answer, Notice, Reading, left_s, nothing, time_of, told

AWS_S, AWS_HINT_S = 120.0, 600.0
GCP_S, GCP_MAINTENANCE_S = 30.0, 60.0
AZURE_S, AZURE_MOST_S = 30.0, 15 * 60.0
AZURE_GOING = ("Preempt", "Terminate", "Redeploy", "Reboot")  # a Freeze is over within seconds
FILE_S, FILE_MOST_S = 30.0, 24 * 3600.0
AWS_ACTIONS = ("terminate", "stop", "hibernate")


def aws_instance_action(answer: Answer, *, now: float) -> Reading:
    """What is to become of this instance."""
    if answer.status == 404:
        return nothing("no interruption is planned")
    data = _object(answer)
    if isinstance(data, Reading):
        return data
    action = data.get("action")
    if action not in AWS_ACTIONS:
        return nothing(f"its action is {action!r}; one of {', '.join(AWS_ACTIONS)} is known")
    stated_t = time_of(str(data.get("time", "")))
    left = left_s(stated_t, answer=answer, now=now, usual_s=AWS_S, most_s=AWS_S)
    return told(Notice(by_t=now + left, cause=f"AWS is to {action} this spot instance"))


def aws_rebalance(answer: Answer, *, now: float) -> Reading:
    """Whether this instance is likelier than others to be interrupted soon; it may stay all the same."""
    if answer.status == 404:
        return nothing("no rebalance is recommended")
    data = _object(answer)
    if isinstance(data, Reading):
        return data
    if time_of(str(data.get("noticeTime", ""))) is None:
        return nothing("it names no noticeTime")
    return told(Notice(by_t=now + AWS_HINT_S, cause="AWS recommends to rebalance this spot instance", is_hint=True))


def gcp_preempted(answer: Answer, *, now: float) -> Reading:
    """Whether this machine is being taken back."""
    if answer.status != 200:
        return nothing(_silence(answer))
    match answer.text.upper():
        case "TRUE":
            return told(Notice(by_t=now + GCP_S, cause="GCP preempts this machine"))
        case "FALSE":
            return nothing("it is not preempted")
        case other:
            return nothing(f"{other[:40]!r} is neither TRUE nor FALSE")


def gcp_maintenance(answer: Answer, *, now: float) -> Reading:
    """Whether this machine's host is to be taken down, and the machine with it; a live migration is no end."""
    if answer.status != 200:
        return nothing(_silence(answer))
    if answer.text != "TERMINATE_ON_HOST_MAINTENANCE":
        return nothing(f"maintenance: {answer.text[:40]}")
    return told(Notice(by_t=now + GCP_MAINTENANCE_S, cause="GCP ends this machine for maintenance of its host"))


def azure_events(answer: Answer, *, machine: str, now: float) -> Reading:
    """The first event that ends the machine named `machine`."""
    if answer.status != 200:
        return nothing(_silence(answer))
    data = _object(answer)
    if isinstance(data, Reading):
        return data
    events = data.get("Events")
    if not isinstance(events, list):
        return nothing("it has no list of Events")
    mine = [event for event in events if _ends(event, machine=machine)]
    if not mine:
        return nothing(f"none of {counted(len(events), noun='event')} ends {machine}")
    first = min((_azure_notice(event, answer=answer, now=now) for event in mine), key=lambda notice: notice.by_t)
    return told(first)


def trigger_file(text: str, *, now: float) -> Reading:
    """What a file says by being there: seconds or a time in it, and the usual warning where it says neither."""
    word = text.strip()
    try:
        left = float(word)
    except ValueError:
        left = left_s(time_of(word), answer=Answer(status=200), now=now, usual_s=FILE_S, most_s=FILE_MOST_S)
    usable = left if 0.0 <= left <= FILE_MOST_S else FILE_S
    return told(Notice(by_t=now + usable, cause="a file asks to leave this node"))


def _silence(answer: Answer) -> str:
    """Why an answer is none."""
    return f"status {answer.status}" if answer.status else answer.text


def _ends(event: Any, *, machine: str) -> bool:  # Any: whatever stands in the list
    if not isinstance(event, dict) or event.get("EventType") not in AZURE_GOING:
        return False
    resources = event.get("Resources")
    return isinstance(resources, list) and machine in resources and bool(event.get("EventId"))


def _azure_notice(event: dict[str, Any], *, answer: Answer, now: float) -> Notice:
    kind = event["EventType"]
    stated_t = time_of(str(event.get("NotBefore", "")))
    left = left_s(stated_t, answer=answer, now=now, usual_s=AZURE_S, most_s=AZURE_MOST_S)
    return Notice(by_t=now + left, cause=f"Azure is to {str(kind).lower()} this machine", ack=str(event["EventId"]))


def _object(answer: Answer) -> dict[str, Any] | Reading:
    """The JSON object in an answer, or what is wrong with it."""
    if answer.status != 200:
        return nothing(_silence(answer))
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        return nothing(f"{answer.text[:40]!r} is no JSON")
    return data if isinstance(data, dict) else nothing("its JSON is no object")
