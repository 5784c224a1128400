"""Template filters: formats times, durations, numbers, ids and states.

Ids are shown exactly. Control characters and invisible characters are replaced by their code points.
"""

import re
import unicodedata
from datetime import UTC, datetime

from markupsafe import Markup, escape

from app.sync.runs.schedule import zone_of

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_FAR = 90 * _DAY
_UNITS = ((1, "s", 60), (_MINUTE, "min", 60), (_HOUR, "h", 24), (_DAY, "d", _FAR))
"""Seconds, unit, and the number from which the next unit is used."""
_SHORT = 64
"""The length from which ids and names are shortened."""
_UNBROKEN = 24
"""The length up to which an id stays on one line."""
_STATUS = re.compile(r"[A-Z]{3,}(?:_[A-Z]+)*: (?:data\.\w+\[\d+\]\.)?(?=.)")
FOLDERS = re.compile(r"(?:^|(?<=: ))/.*/")
"""The folders in the path of a file."""


def percent(part: int, whole: int) -> str:
    """``64 %``, or ``–`` if the whole is zero."""
    return "–" if not whole else f"{100 * part / whole:.0f} %"


def rate(value: float) -> str:
    """``332``, ``0.3``."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def latency(seconds: float) -> str:
    """``4.2 ms``, ``1.3 s``."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def duration(seconds: float | None) -> str:
    """``0.3 s``, ``3 min 1 s``, ``2 h 5 min``."""
    if seconds is None:
        return "–"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s" if whole % _MINUTE else f"{whole // _MINUTE} min"
    hours, minutes = whole // _HOUR, whole % _HOUR // _MINUTE
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def ago(moment: datetime, now: datetime) -> str:
    """``3 min ago``, ``in 11 min``, rounded, or a date if it is more than 90 days away."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) >= _FAR:
        return f"{moment.astimezone(UTC):%-d %b %Y}"
    number_of = ((int(abs(seconds) / size + 0.5), unit, most) for size, unit, most in _UNITS)
    passed, unit = next((number, unit) for number, unit, most in number_of if number < most)
    if not passed:
        return "now"
    return f"{passed} {unit} ago" if seconds > 0 else f"in {passed} {unit}"


def utc_moment(text: str, zone: str) -> datetime:
    """The moment of an ISO 8601 text, in UTC. ``zone``: the time zone of a text without one. Empty: UTC. Raises
    ``ValueError`` or ``OverflowError``."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone_of(zone or "UTC"))).astimezone(UTC)


def clock_time(moment: datetime, now: datetime | None) -> str:
    """``21 Nov 16:13:22``, in UTC; ``21 Nov 2024 16:13:22`` if the year differs from that of ``now``."""
    is_this_year = now is not None and moment.astimezone(UTC).year == now.astimezone(UTC).year
    return f"{moment.astimezone(UTC):{'%-d %b' if is_this_year else '%-d %b %Y'} %H:%M:%S}"


def time_tag(moment: datetime | None, now: datetime | None, *, is_ago: bool = False) -> Markup:
    """A ``time`` element with the exact time as title. The script converts it to the reader's time zone."""
    if moment is None:
        return Markup("–")
    shown = ago(moment, now) if is_ago and now is not None else clock_time(moment, now)
    kind, utc = "ago" if is_ago else "time", moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{:%Y-%m-%d %H:%M:%S} UTC" data-{}>{}</time>').format(
        utc.isoformat(timespec="milliseconds"), utc, kind, shown
    )


def run_tag(run_id: str, now: datetime | None) -> Markup:
    """``run of 21 Nov 16:13:22``, with the id as title. Ids begin with the time of the request."""
    try:
        moment = datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return Markup("run {}").format(id_tag(run_id))
    return Markup('<span title="{}">run of {}</span>').format(run_id, time_tag(moment, now))


_BROWSERS = ("Edg", "OPR", "Firefox", "Chrome", "Safari", "curl")
_SYSTEMS = ("Windows", "Android", "iPhone", "iPad", "Mac OS X", "Linux")


def browser_tag(agent: str) -> Markup:
    """The browser and the system of a user agent, which is the title: ``Firefox, Windows``."""
    names = (next((name for name in group if name in agent), "") for group in (_BROWSERS, _SYSTEMS))
    label = ", ".join(filter(None, names)).replace("Edg", "Edge").replace("OPR", "Opera").replace("Mac OS X", "macOS")
    return Markup('<span title="{}">{}</span>').format(visible(agent), label or visible(agent[:40]) or "unknown")


def visible(text: str) -> str:
    """Replaces invisible characters and those that change the direction of text, as in ``‹U+202E›``."""
    return "".join(
        f"‹U+{ord(character):04X}›"
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} and character != "\u200d"
        else character
        for character in text
    )


def sentence(text: str) -> str:
    """The result of ``visible``, with a capital letter if the text begins with an ordinary word."""
    shown = visible(text)
    return shown[:1].upper() + shown[1:] if shown.split(" ")[0].rstrip(",;:.").isalpha() else shown


def without_status(message: str) -> str:
    """A message of the backend without its status, such as ``INVALID_ARGUMENT:``, and the position in the call."""
    match = _STATUS.match(message)
    return message if match is None else message[match.end() :]


def visible_lines(text: str) -> str:
    """The result of ``visible`` for each line, with tabs as spaces."""
    return "\n".join(visible(line) for line in text.replace("\t", "  ").split("\n"))


def id_tag(text: str, limit: int = _SHORT) -> Markup:
    """An id in a monospaced font. A long id is shortened, with the whole id as title."""
    shown = visible(text)
    if len(shown) <= limit:
        return Markup('<code class="{}">{}</code>').format("id" if len(shown) <= _UNBROKEN else "id long", shown)
    return Markup('<code class="id long" title="{}">{}…</code>').format(shown, shown[: limit - 1])


def place_tag(text: str) -> Markup:
    """The place of a record in its source, as title. Of the path of a file, only the name is shown."""
    shown = visible(text)
    words = Markup(" ").join(_unbroken(word) for word in FOLDERS.sub("", shown).split(" "))
    return Markup('<code title="{}">{}</code>').format(shown, words)


def _unbroken(word: str) -> Markup:
    """A short word on one line. A long one may be broken after a slash and before the number of its line."""
    if len(word) <= _UNBROKEN:
        return Markup('<span class="tight">{}</span>').format(word)
    return Markup("<wbr>").join(re.split(r"(?<=/)|(?=:\d)", word))


def name_tag(text: str | None, limit: int = _SHORT) -> Markup:
    """A name. A long name is shortened, with the whole name as title."""
    shown = visible(text or "")
    if len(shown) <= limit:
        return escape(shown)
    return Markup('<span title="{}">{}…</span>').format(shown, shown[: limit - 1])


_WORDS = {"waiting": "retrying"}
"""State → the word that pages show, if it is another one."""

TONES = {
    **dict.fromkeys(("done", "complete", "allowed", "ok", "approved"), "ok"),
    **dict.fromkeys(("held", "not configured", "partial", "records lost", "refused", "waiting", "warning"), "warn"),
    **dict.fromkeys(("failed", "parked", "denied", "problem"), "bad"),
    **dict.fromkeys(("reading", "verifying", "planning", "applying"), "run"),
}
"""State → tone. The tone of other states is ``idle``."""

_SHAPES = {
    "ok": '<circle cx="5" cy="5" r="4.5"/>',
    "warn": '<path d="M5 .8 9.6 9.2H.4z"/>',
    "bad": '<rect x="1" y="1" width="8" height="8"/>',
    "run": '<circle class="ring" cx="5" cy="5" r="4"/><path d="M5 1a4 4 0 0 0 0 8z"/>',
    "idle": '<circle class="ring" cx="5" cy="5" r="4"/>',
}


def state_word(word: str) -> str:
    """The word that pages show for a state."""
    return _WORDS.get(word, word)


def state(word: str, text: str | None = None) -> Markup:
    """A state as a shape and a word, in its tone. ``text`` replaces the word, as in ``34 held``."""
    tone = TONES.get(word, "idle")
    shape = Markup(_SHAPES[tone])  # noqa: S704 - of a constant
    return Markup(
        '<span class="state {}"><svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true" focusable="false">'
        "{}</svg>{}</span>"
    ).format(tone, shape, visible(state_word(word) if text is None else text))


def pill(word: str) -> Markup:
    """A state for use beside a heading."""
    return Markup('<span class="pill {}">{}</span>').format(TONES.get(word, "idle"), state(word))
