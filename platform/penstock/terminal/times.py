"""Times as people say them: a moment, or how long ago."""

from datetime import UTC, datetime, timedelta

from penstock.errors import InvalidInput

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def since_us(text: str) -> int:
    """A time, or an age such as 24h or 7d, in microseconds since 1970. Raises InvalidInput."""
    if text[-1:] in _UNITS and text[:-1].isdecimal():
        age = timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        moment = datetime.now(UTC) - age
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(
                what=f"--since {text}", why="it is neither a time nor an age such as 24h"
            ) from None
    return round(moment.timestamp() * 1_000_000)
