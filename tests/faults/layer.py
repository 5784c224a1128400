"""Injects faults into calls to the backend.

``FaultLayer`` is a transport of ``requests`` in front of the real backend. The fault of a call depends on the seed, the
content of the call and the number of its repeats, but not on the order of threads. So a schedule can be repeated from
its seed.
"""

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from enum import StrEnum
from hashlib import sha256
from random import Random
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPResponse
from urllib3._collections import HTTPHeaderDict
from urllib3.exceptions import IncompleteRead, MaxRetryError, NewConnectionError, ProtocolError, ReadTimeoutError

from app.contract.operation import AnyOperation, Tier
from app.contract.operations import ITEMS, by_name
from tests.worlds.clock import SimulatedTime
from tests.worlds.operation_paths import by_path
from tests.wsgi import WsgiAdapter


class Fault(StrEnum):
    """What happens to one call."""

    REFUSED = "no connection"
    CONNECT_TIMEOUT = "no connection within the time allowed"
    RESET_BEFORE = "connection reset, nothing done"
    RESET_AFTER = "connection reset, all done"
    LATE = "answered after the timeout"
    CUT = "connection lost in the middle of the answer"
    THROTTLED = "429 without Retry-After"
    THROTTLED_SECONDS = "429 with seconds"
    THROTTLED_DATE = "429 with a date"
    THROTTLED_ABSURD = "429 with nonsense"
    BROKEN = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    TRUNCATED = "truncated JSON"
    HTML = "200 with HTML"
    EMPTY = "200 with nothing"
    WRONG_ENVELOPE = "200 with another envelope"
    UNKNOWN_IDS = "results for ids that nobody asked about"
    RESULTS_MISSING = "results missing"
    ITEMS_FAILED = "items failed, 200"
    ITEMS_FAILED_500 = "items failed, 500 with details"
    REFUSED_BATCH = "400 because of one item"
    UNAUTHORIZED = "401"
    NO_SUCH_OPERATION = "404 on an extended operation"
    LOST_WRITE = "confirmed and lost"
    DELAYED = "timed out, and done much later"
    CHANGED_BEHIND = "something else changed by someone"


SILENT = frozenset({Fault.LOST_WRITE, Fault.DELAYED, Fault.CHANGED_BEHIND})
"""Faults that no response shows. Only a verify finds them."""

LASTING = frozenset({Fault.UNAUTHORIZED, Fault.NO_SUCH_OPERATION, Fault.REFUSED_BATCH})
"""What stays as it is for the length of a run, once it has begun."""

OUTAGES = tuple(fault for fault in Fault if fault not in SILENT)

_ABSURD = ("-5", "soon", "1e308", "99999999999", "NaN", "", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 99 Zed 2026", "0")


@dataclass(frozen=True)
class Weather:
    """Which faults there are, and how often: of a hundred calls so many are spoilt."""

    seed: int
    faults: tuple[Fault, ...]
    percent: float


@dataclass(frozen=True)
class Call:
    """One request that reached the layer."""

    operation: str
    data: Mapping[str, Any]
    is_write: bool
    at: float


@dataclass
class _Exchange:
    """One call while it is being spoilt."""

    request: requests.PreparedRequest
    path: str
    contracted: AnyOperation
    data: dict[str, Any]
    random: Random
    timeout: float

    @property
    def may_be_missing(self) -> bool:
        """Whether a real deployment may lack the operation, or the path that accepts more than the reference."""
        return self.contracted.tier is Tier.EXTENDED or self.path != self.contracted.path


@dataclass
class FaultLayer(BaseAdapter):
    """The transport. ``weather`` None: every call goes through unharmed."""

    app: Any
    time: SimulatedTime
    change_something: Callable[[Random], None] = lambda _random: None
    weather: Weather | None = None
    script: dict[str, list[Fault | None]] = field(default_factory=dict)
    """By operation, what happens to its next calls; instead of weather."""
    calls: list[Call] = field(default_factory=list)
    injected: Counter[Fault] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()
        self._backend = WsgiAdapter(self.app)
        self._builder = HTTPAdapter(max_retries=0)
        self._repeats: Counter[str] = Counter()
        self._lasting: dict[str, Fault] = {}
        self._delayed: list[requests.PreparedRequest] = []
        self._lock = threading.Lock()

    # The interface for tests.

    def begin_run(self) -> None:
        """Ends lasting faults and delivers delayed calls.

        No call arrives later than that. A verify could not distinguish an add that arrives after the delete of its item
        from an item of another client: it would report the item and leave it alone.
        """
        self.deliver()
        self._lasting.clear()

    def clear_up(self) -> None:
        """Good weather from now on. What is still under way arrives first."""
        self.deliver()
        self.weather = None
        self._lasting.clear()

    def deliver(self) -> None:
        with self._lock:
            waiting, self._delayed = self._delayed, []
        for request in waiting:
            self._backend.send(request)

    @property
    def writes(self) -> int:
        return sum(call.is_write for call in self.calls)

    # The transport.

    def send(self, request: Any, *_given: Any, **given: Any) -> requests.Response:
        path = urlsplit(request.url).path
        contracted = by_path(path)
        assert contracted is not None, path
        body = request.body or b"{}"
        data = json.loads(body)["data"]
        with self._lock:
            self.calls.append(Call(contracted.name, data, not contracted.is_read, self.time.monotonic()))
        scripted = self.script.get(contracted.name)
        if self.weather is None and not scripted:
            return self._backend.send(request)
        digest = sha256(path.encode() + b"\n" + body).hexdigest()
        with self._lock:
            self._repeats[digest] += 1
            repetition = self._repeats[digest]
        exchange = _Exchange(
            request,
            path,
            contracted,
            data,
            Random(f"{self.weather and self.weather.seed} {digest} {repetition}"),
            given["timeout"][1] if given.get("timeout") else 30.0,
        )
        fault = self._choose(self.weather, exchange) if self.weather else (scripted or [None]).pop(0)
        if fault is None:
            return self._backend.send(request)
        with self._lock:
            self.injected[fault] += 1
        return self._spoil(fault, exchange)

    def close(self) -> None:
        """Nothing is open."""

    def _choose(self, weather: Weather, exchange: _Exchange) -> Fault | None:
        lasting = self._lasts(weather, exchange)
        if lasting is not None:
            return lasting
        random = exchange.random
        if random.random() * 100 >= weather.percent:
            return None
        fault = random.choice(weather.faults)
        if fault is Fault.UNAUTHORIZED and random.random() < 0.7:
            return None  # it ends the run: as often as the others it would hide them
        if fault is Fault.NO_SUCH_OPERATION and not exchange.may_be_missing:
            return None
        if fault in {Fault.LOST_WRITE, Fault.DELAYED} and exchange.contracted.is_read:
            return None
        if fault is Fault.NO_SUCH_OPERATION and random.random() < 0.5:
            self._lasting[exchange.path] = fault
        if fault is Fault.UNAUTHORIZED:
            self._lasting[""] = fault
        return fault

    def _lasts(self, weather: Weather, exchange: _Exchange) -> Fault | None:
        if "" in self._lasting:
            return self._lasting[""]
        if Fault.REFUSED_BATCH in weather.faults and any(
            _is_poison(weather, name) for name in _item_names(exchange.contracted, exchange.data)
        ):
            return Fault.REFUSED_BATCH
        return self._lasting.get(exchange.path)

    def _spoil(self, fault: Fault, exchange: _Exchange) -> requests.Response:
        match fault:
            case Fault.REFUSED | Fault.CONNECT_TIMEOUT | Fault.RESET_BEFORE | Fault.RESET_AFTER | Fault.LATE:
                return self._lose(fault, exchange)
            case Fault.DELAYED:
                with self._lock:
                    self._delayed.append(exchange.request.copy())
                return self._lose(Fault.LATE, exchange, apply=False)
            case Fault.CHANGED_BEHIND:
                self.change_something(exchange.random)
                if exchange.random.random() < 0.3:
                    self.deliver()
                return self._backend.send(exchange.request)
            case Fault.ITEMS_FAILED | Fault.ITEMS_FAILED_500:
                return self._fail_items(fault, exchange)
            case Fault.UNKNOWN_IDS | Fault.RESULTS_MISSING:
                return self._misreport(fault, exchange)
            case Fault.LOST_WRITE:
                return self._confirm_only(exchange)
            case Fault.TRUNCATED | Fault.CUT | Fault.HTML | Fault.EMPTY | Fault.WRONG_ENVELOPE:
                return self._garble(fault, exchange)
            case _:
                return self._refuse(fault, exchange)

    def _lose(self, fault: Fault, exchange: _Exchange, *, apply: bool = True) -> requests.Response:
        url = str(exchange.request.url)
        if fault is Fault.REFUSED:
            refused = NewConnectionError(None, "Failed to establish a new connection")  # type: ignore[arg-type]
            raise requests.ConnectionError(MaxRetryError(None, url, refused))  # type: ignore[arg-type]
        if fault is Fault.CONNECT_TIMEOUT:
            self.time.sleep(10)
            raise requests.ConnectTimeout("timed out")
        if fault in {Fault.RESET_AFTER, Fault.LATE} and apply:
            self._backend.send(exchange.request)
        if fault is Fault.LATE:
            self.time.sleep(exchange.timeout)
            raise requests.ReadTimeout(ReadTimeoutError(None, url, "Read timed out."))  # type: ignore[arg-type]
        reset = ConnectionResetError(104, "Connection reset by peer")
        raise requests.ConnectionError(ProtocolError("Connection aborted.", reset))

    def _refuse(self, fault: Fault, exchange: _Exchange) -> requests.Response:
        random = exchange.random
        headers: dict[str, str] = {}
        match fault:
            case Fault.THROTTLED_SECONDS:
                headers["Retry-After"] = str(random.choice((1, 2, 7, 30, 100)))
            case Fault.THROTTLED_DATE:
                moment = self.time() + timedelta(seconds=random.choice((-30, 1, 20, 60)))
                headers["Retry-After"] = format_datetime(moment, usegmt=True)
            case Fault.THROTTLED_ABSURD:
                headers["Retry-After"] = random.choice(_ABSURD)
            case Fault.UNAVAILABLE if random.random() < 0.5:
                headers["Retry-After"] = "3"
        code, status = {
            Fault.BROKEN: (500, "INTERNAL"),
            Fault.BAD_GATEWAY: (502, "UNAVAILABLE"),
            Fault.UNAVAILABLE: (503, "UNAVAILABLE"),
            Fault.REFUSED_BATCH: (400, "INVALID_ARGUMENT"),
            Fault.UNAUTHORIZED: (401, "UNAUTHENTICATED"),
            Fault.NO_SUCH_OPERATION: (404, "NOT_FOUND"),
        }.get(fault, (429, "RESOURCE_EXHAUSTED"))
        if fault in {Fault.BROKEN, Fault.BAD_GATEWAY, Fault.UNAVAILABLE} and random.random() < 0.5:
            self._backend.send(exchange.request)  # a gateway answers so even if the call was applied
        if random.random() < 0.5 and fault not in LASTING:
            return self.respond(exchange.request, code, b"<html><h1>Sorry</h1></html>", headers, "text/html")
        if fault is Fault.NO_SUCH_OPERATION and random.random() < 0.7:
            return self.respond(exchange.request, code, b"<html>no such page</html>", headers, "text/html")
        body = {"error": {"status": status, "message": f"injected {code}"}}
        return self.respond(exchange.request, code, json.dumps(body).encode(), headers)

    def _garble(self, fault: Fault, exchange: _Exchange) -> requests.Response:
        random = exchange.random
        # If the response contains no items, Usher accepts any response: losing the call would be a silent fault.
        returns_items = exchange.contracted.result is ITEMS
        done = fault in {Fault.TRUNCATED, Fault.CUT} or not returns_items or random.random() < 0.5
        body = self._backend.send(exchange.request).content if done else b'{"result": {"status": "success"}}'
        match fault:
            case Fault.TRUNCATED:
                body = body[: random.randrange(1, len(body))]
            case Fault.CUT:
                return self.respond(exchange.request, 200, body, {}, cut_at=random.randrange(len(body)))
            case Fault.HTML:
                body = b"<!doctype html><title>Please sign in</title>"
            case Fault.EMPTY:
                body = b""
            case _:
                body = random.choice(
                    (
                        b"[]",
                        b"null",
                        b'{"ok": true}',
                        b'{"result": []}',
                        b'{"result": null}',
                        b'{"data": {"result": {"status": "success"}}}',
                        b'{"result": {"status": "success", "message": "ok", "data": 7}}',
                    )
                )
        return self.respond(exchange.request, 200, body, {})

    def _misreport(self, fault: Fault, exchange: _Exchange) -> requests.Response:
        response = self._backend.send(exchange.request)
        try:
            answer = json.loads(response.content)
            results = answer["result"]["data"]
        except (KeyError, TypeError):
            return self._again(exchange, response)
        if exchange.contracted.result is not ITEMS or not isinstance(results, dict):
            return self._again(exchange, response)
        if fault is Fault.UNKNOWN_IDS:
            results["nobody-asked"] = {"success": False, "id": "nobody-asked", "message": "Internal error."}
            results["nor-for-this"] = {"success": True, "id": "nor-for-this", "message": "Done."}
        else:
            for name in list(results):
                if exchange.random.random() < 0.5:
                    del results[name]
        return self.respond(exchange.request, response.status_code, json.dumps(answer).encode(), {})

    def _fail_items(self, fault: Fault, exchange: _Exchange) -> requests.Response:
        """Some items are not done; the backend is asked for the others alone."""
        data = dict(exchange.data)
        if data.pop("deleteAll", False):
            data["userIds"] = self._members(exchange)
        names = _item_names(exchange.contracted, data)
        listed = exchange.contracted.items_field or ""
        if exchange.contracted.name == "delete_folder":
            names = [data["folderId"]]
        if exchange.contracted.is_read or not names:
            return self._refuse(Fault.BROKEN, exchange)
        failed = {name for name in names if exchange.random.random() < 0.5} or {names[0]}
        rest = [item for item in data.get(listed, ()) if _name(item) not in failed]
        results: dict[str, Any] = {}
        if rest:
            answer = self._ask_instead(exchange.request, {**data, listed: rest})
            if exchange.contracted.result is not ITEMS and "result" in answer:
                # The operation returns no items, but a backend that fails for some of them returns them all.
                answer["result"]["data"] = {_name(item): {"success": True, "message": "Done."} for item in rest}
            returned = (answer.get("result") or answer.get("error") or {}).get("data") or answer.get("error", {}).get(
                "details"
            )
            if not isinstance(returned, dict):
                return self.respond(exchange.request, 500, json.dumps(answer).encode(), {})
            results = returned
        for name in failed:
            results[name] = {"success": False, "id": name, "message": "Something went wrong."}
            if fault is Fault.ITEMS_FAILED_500 or exchange.random.random() < 0.5:
                results[name]["code"] = "internal"
        if fault is Fault.ITEMS_FAILED_500:
            error = {"status": "INTERNAL", "message": "Some failed.", "details": results}
            return self.respond(exchange.request, 500, json.dumps({"error": error}).encode(), {})
        result = {"status": "success", "message": "ok", "data": results}
        return self.respond(exchange.request, 200, json.dumps({"result": result}).encode(), {})

    def _members(self, exchange: _Exchange) -> list[str]:
        """Whom a call that names nobody is about: the group's members as the backend has them."""
        asked = {
            "organizationId": exchange.data["organizationId"],
            "organizationUserGroupIds": [exchange.data["organizationUserGroupId"]],
        }
        answer = self._ask_instead(exchange.request, asked, by_name("get_users").path)
        return sorted({one["userId"] for one in (answer.get("result") or {}).get("data") or ()})

    def _ask_instead(self, request: requests.PreparedRequest, data: Mapping[str, Any], path: str = "") -> Any:
        other = request.copy()
        if path:
            other.url = str(request.url).replace(urlsplit(str(request.url)).path, path)
        other.prepare_body(json.dumps({"data": data}).encode(), None)
        return json.loads(self._backend.send(other).content)

    def _confirm_only(self, exchange: _Exchange) -> requests.Response:
        results = {
            name: {"success": True, "id": name, "message": "Done."}
            for name in _item_names(exchange.contracted, exchange.data)
        }
        data = results if exchange.contracted.result is ITEMS else None
        result = {"status": "success", "message": "ok", "data": data}
        return self.respond(exchange.request, 200, json.dumps({"result": result}).encode(), {})

    def _again(self, exchange: _Exchange, response: requests.Response) -> requests.Response:
        return self.respond(exchange.request, response.status_code, response.content, {})

    def respond(
        self,
        request: requests.PreparedRequest,
        code: int,
        body: bytes,
        headers: Mapping[str, str],
        content_type: str = "application/json",
        *,
        cut_at: int | None = None,
    ) -> requests.Response:
        stream = io.BytesIO(body) if cut_at is None else _CutOff(body[:cut_at])
        raw = HTTPResponse(
            body=stream,
            headers=HTTPHeaderDict({"Content-Type": content_type, **headers}),
            status=code,
            preload_content=False,
        )
        return self._builder.build_response(request, raw)


class _CutOff(io.BytesIO):
    """A body that breaks off."""

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        if not piece:
            raise IncompleteRead(self.tell(), 1)
        return piece


def _name(item: Any) -> str:
    if isinstance(item, str):
        return item
    for name in ("userId", "documentId", "folderId", "groupId", "organizationId"):
        if name in item:
            return str(item[name])
    return ""


def _item_names(contracted: AnyOperation, data: Mapping[str, Any]) -> Sequence[str]:
    listed = data.get(contracted.items_field) if contracted.items_field else None
    return [_name(item) for item in listed] if isinstance(listed, list) else []


def _is_poison(weather: Weather, name: str) -> bool:
    """Whether the backend refuses every batch that this item is in."""
    return sha256(f"{weather.seed} {name}".encode()).digest()[0] < 12
