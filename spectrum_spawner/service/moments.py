"""Moments as text and back: UTC, in one width, so that their texts sort as they do."""

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """RFC 3339 to the microsecond, always 27 characters."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def read_moment(text: str) -> datetime:
    """An RFC 3339 time in UTC; without a zone it is UTC. ValueError if it is none."""
    moment = datetime.fromisoformat(text)
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(f"{text} lies outside of the calendar") from error


def show(moment: datetime) -> str:
    """For people, to the minute."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
