"""The rules of `elastic.calendar`: times that are times, in order, each once, with devices that the run can have."""

import re
from zoneinfo import available_timezones

from raymega.config.fault import Fault, nearest
from raymega.config.schema import Config

KEY, ZONE = "elastic.calendar", "elastic.timezone"
READS = (KEY, "elastic.min_devices", "run.devices")
TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def the_calendar_is_in_order(config: Config) -> Fault | None:
    """Every entry begins at a time of its own, later than the one before, and is within the run's reach."""
    entries = entries_of(config)
    times = [time for time, _ in entries]
    wrong = [time for time in times if not TIME.fullmatch(time)]
    if wrong:
        return Fault(
            key=KEY, problem=f"{', '.join(wrong)} is no time of day", way_out='Use two digits each, as "08:00"'
        )
    if times != sorted(set(times)):
        problem = (
            f"{', '.join(times)} are not in order, each once; an entry holds until the next one, and over midnight"
        )
        return Fault(key=KEY, problem=problem, way_out=f"Use {', '.join(sorted(set(times)))}")
    least, most = config.elastic.min_devices, config.run.devices
    low = [f"{devices} from {time}" for time, devices in entries if devices < least]
    if low:
        problem = f"{', '.join(low)} is below elastic.min_devices {least}"
        return Fault(key=KEY, problem=problem, way_out=f"Use {least} or more, or a lower min_devices")
    high = [f"{devices} from {time}" for time, devices in entries if most is not None and devices > most]
    if high:
        problem = f"{', '.join(high)} is above run.devices {most}"
        return Fault(key=KEY, problem=problem, way_out=f"Use {most} or less, or a higher run.devices")
    return None


def the_zone_is_known(config: Config) -> Fault | None:
    """Its clocks are those of a place that the system knows."""
    zone = config.elastic.timezone
    if zone == "UTC":
        return None
    known = available_timezones()
    if zone in known:
        return None
    near = nearest(zone, known)
    hint = f"Use {near}" if near else "Use UTC, or a name as Europe/Berlin"
    return Fault(key=ZONE, problem=f"{zone} is no time zone of this system", way_out=hint)


def entries_of(config: Config) -> tuple[tuple[str, int], ...]:
    """(time of day, devices) of the calendar."""
    told = (entry.model_dump() for entry in config.elastic.calendar)
    return tuple((str(entry["from"]), int(entry["devices"])) for entry in told)
