"""The format of log lines, and the masking of secrets."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from sqlalchemy import create_engine, text

from app.foundation.logs import LogSettings, configure_logs


@pytest.fixture(autouse=True)
def leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(level: str = "info", form: str = "json") -> io.StringIO:
    stream = io.StringIO()
    configure_logs(LogSettings.model_validate({"level": level, "format": form}), stream=stream)
    return stream


def test_lines_of_usher_and_libraries_have_one_format() -> None:
    stream = lines(form="auto")
    structlog.stdlib.get_logger("app.x").info("happened", run_id="r1")
    logging.getLogger("gunicorn.error").warning("odd %s", "thing")
    ours, theirs = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (ours["event"], ours["run_id"], ours["level"], ours["logger"]) == ("happened", "r1", "info", "app.x")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("odd thing", "warning", "gunicorn.error")
    assert ours["timestamp"].endswith("Z")


def test_a_logger_that_was_used_before_follows_new_settings() -> None:
    log = structlog.stdlib.get_logger("app.x")
    before = lines("info")
    log.info("first")
    after = lines("error", "text")
    log.info("second")
    log.error("third")
    assert json.loads(before.getvalue())["event"] == "first"
    assert re.findall("second|third", after.getvalue()) == ["third"]


def test_every_line_contains_the_request_id() -> None:
    stream = lines()
    with structlog.contextvars.bound_contextvars(request_id="q7"):
        structlog.stdlib.get_logger("app").info("ours")
        logging.getLogger("theirs").error("theirs")
    assert [json.loads(line)["request_id"] for line in stream.getvalue().splitlines()] == ["q7", "q7"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_masked_at_any_depth(form: str) -> None:
    stream = lines(form=form)
    log = structlog.stdlib.get_logger("app")
    log.info(
        "call",
        auth_token="TOPSECRET",
        headers={"Authorization": "Bearer TOPSECRET", "nested": [{"api_key": "TOPSECRET"}]},
        url="postgresql://me:TOPSECRET@host/db",
        said="sent Bearer TOPSECRET to it",
    )
    logging.getLogger("lib").warning("cannot reach postgresql://me:%s@host/db", "TOPSECRET")
    log.error("broke", exc_info=ValueError("postgresql://me:TOPSECRET@host/db"))
    text = stream.getvalue()
    assert "TOPSECRET" not in text
    assert text.count("********") >= 6
    assert "ValueError" in text


def test_lines_below_the_level_are_dropped() -> None:
    stream = lines(level="warning")
    structlog.stdlib.get_logger("app").info("small")
    logging.getLogger("apscheduler").info("small")
    logging.getLogger("app").warning("large")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["large"]


def test_text_stays_on_one_line_for_one_event() -> None:
    stream = lines(form="text")
    structlog.stdlib.get_logger("app").info("request", path="/a\nfake line")
    assert len(stream.getvalue().splitlines()) == 1


def test_debug_logs_statements_without_rows() -> None:
    stream = lines("debug")
    engine = create_engine("sqlite://", hide_parameters=True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 'TOP' || 'SECRET'")).scalar() == "TOPSECRET"
    engine.dispose()
    assert "SELECT" in stream.getvalue()
    assert "TOPSECRET" not in stream.getvalue()


def test_important_keys_come_first() -> None:
    stream = lines()
    structlog.stdlib.get_logger("app.x").info("happened", run_id="r1", a=1)
    logging.getLogger("gunicorn.error").warning("odd")
    assert [list(json.loads(line))[:3] for line in stream.getvalue().splitlines()] == [
        ["timestamp", "level", "event"]
    ] * 2
    stream = lines(form="text")
    structlog.stdlib.get_logger("app.x").info("happened")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", stream.getvalue())
