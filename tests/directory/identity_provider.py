"""An identity provider on loopback: it replays the documented payloads of several APIs, and misbehaves on demand."""

import json
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jwt

Json = dict[str, Any]

BASES = {
    "keycloak": "/admin/realms/corp",
    "okta": "/api/v1",
    "google_workspace": "/admin/directory/v1",
    "scim": "/scim/v2",
    "microsoft_graph": "/v1.0",
}
ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT, SECRET, TOKEN = "usher", "hunter2/:@", "hunter2-token"
KEY = jwk.generate_key("RSA", 2048)
DEEP = "@deep@"


@dataclass
class Group:
    """A group of people. ``parent``: the id of the group above it."""

    name: str
    members: Sequence[str] = ()
    parent: str = ""


@dataclass
class Call:
    """A request. Its path is relative to the base of the API."""

    handler: "Handler"
    path: str
    parameters: Mapping[str, str]

    def answer(self, body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> bool:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.handler.send_header(name, value)
        self.handler.send_header("Content-Length", str(len(content)))
        self.handler.end_headers()
        self.handler.wfile.write(content)
        return True


Fault = Callable[[Call], bool]
"""Answers a call in place of the API and returns True, or returns False."""


@dataclass
class IdentityProvider:
    """A directory behind one of the APIs in ``BASES``. ``users`` are as in their payload."""

    api: str
    url: str = ""
    users: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    calls: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    fault: Fault = lambda call: False
    page: int = 100
    """The most objects in a page."""
    deep: str = ""
    """Replaces ``DEEP`` in payloads."""
    authorization: Callable[[str], bool] = lambda header: True
    token_answers: list[tuple[int, object]] = field(default_factory=list)
    """Answers of the token endpoint, in place of tokens."""
    tokens: list[str] = field(default_factory=list)
    lifetime: float = 3600
    log: list[tuple[str, Json]] = field(default_factory=list)
    """The changes: set and entry of its delta."""
    connections: int = 0
    running: int = 0
    most_running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base_url(self) -> str:
        return self.url + BASES[self.api]

    def add_user(self, id_: str, name: str, mail: str, *, enabled: bool = True, **more: object) -> None:
        first, _, last = name.partition(" ")
        payloads: dict[str, Json] = {
            "keycloak": {
                "id": id_, "username": mail, "firstName": first, "lastName": last, "email": mail, "enabled": enabled,
                "emailVerified": True, "createdTimestamp": 1764000000000, "attributes": {"employeeID": ["7"]},
            },
            "okta": {
                "id": id_, "status": "ACTIVE" if enabled else "SUSPENDED", "created": "2013-06-24T16:39:18.000Z",
                "lastLogin": None,
                "profile": {"firstName": first, "lastName": last, "displayName": name, "email": mail, "login": mail},
            },
            "google_workspace": {
                "kind": "admin#directory#user", "id": id_, "primaryEmail": mail, "suspended": not enabled,
                "isAdmin": False, "name": {"givenName": first, "familyName": last, "fullName": name},
            },
            "microsoft_graph": {
                "id": id_, "displayName": name, "mail": mail, "userPrincipalName": mail, "accountEnabled": enabled,
                "jobTitle": None,
            },
            "scim": {
                "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "id": id_, "userName": mail,
                "displayName": name, "active": enabled, "emails": [{"value": mail, "primary": True}],
                "meta": {"resourceType": "User", "location": f"{self.base_url}/Users/{id_}"},
            },
        }  # fmt: skip
        self.users[id_] = {**payloads[self.api], **more}

    def group_payload(self, id_: str) -> Json:
        group = self.groups[id_]
        if self.api == "keycloak":
            below = sum(other.parent == id_ for other in self.groups.values())
            return {"id": id_, "name": group.name, "path": f"/{group.name}", "subGroupCount": below, "subGroups": []}
        if self.api == "okta":
            return {"id": id_, "type": "OKTA_GROUP", "profile": {"name": group.name, "description": None}}
        if self.api == "microsoft_graph":
            return {"id": id_, "displayName": group.name, "securityEnabled": True, "description": None}
        if self.api == "google_workspace":
            return {"kind": "admin#directory#group", "id": id_, "email": f"{group.name}@x.example", "name": group.name}
        members = [{"value": one, "$ref": f"{self.base_url}/Users/{one}", "display": "x"} for one in group.members]
        return {"schemas": ["…core:2.0:Group"], "id": id_, "displayName": group.name, "members": members}

    def serve(self, call: Call) -> None:
        """The API's answer to a call."""
        parts = call.path.split("/")
        if parts == ["users", "count"]:
            call.answer(len(self.users))
        elif parts in (["users", "delta"], ["groups", "delta"]):
            self._delta(call, parts[0])
        elif self.api == "microsoft_graph" and parts[0] == "users" and len(parts) == 2 and parts[1] in self.users:
            self._send(call, _selected(self.users[parts[1]], call))
        elif self.api == "microsoft_graph" and parts[0] == "groups" and len(parts) == 2 and parts[1] in self.groups:
            self._send(call, _selected(self.group_payload(parts[1]), call))
        elif parts in (["users"], ["Users"]):
            self._list(call, list(self.users.values()), "users")
        elif parts in (["groups"], ["Groups"]):
            top = self.api != "keycloak"
            self._list(
                call, [self.group_payload(id_) for id_, one in self.groups.items() if top or not one.parent], "groups"
            )
        elif len(parts) == 3 and parts[1] in self.groups and parts[2] == "children":
            self._list(
                call, [self.group_payload(id_) for id_, one in self.groups.items() if one.parent == parts[1]], ""
            )
        elif len(parts) == 3 and parts[1] in self.groups and parts[2] in ("members", "users"):
            members = self.groups[parts[1]].members
            kinds = {one: "GROUP" if one in self.groups else "USER" for one in members}
            own = {
                one: {"kind": "admin#directory#member", "id": one, "type": kinds[one], "role": "MEMBER"}
                for one in members
            }
            self._list(
                call, [own[one] if self.api == "google_workspace" else {"id": one} for one in members], "members"
            )
        else:
            call.answer({"error": "not found"}, status=404)

    def _list(self, call: Call, items: Sequence[object], name: str) -> None:
        asked = call.parameters
        if self.api == "keycloak":
            first, size = int(asked.get("first", 0)), min(int(asked.get("max", 100)), self.page)
            self._send(call, items[first : first + size])
            return
        if self.api == "scim":
            start, size = int(asked.get("startIndex", 1)) - 1, min(int(asked.get("count", 50)), self.page)
            found = items[start : start + size]
            body: Json = {"schemas": ["…ListResponse"], "totalResults": len(items), "startIndex": start + 1}
            self._send(call, {**body, **({"Resources": found} if found else {})})
            return
        if self.api == "microsoft_graph":
            start = int(asked.get("$skiptoken", 0))
            size = min(int(asked.get("$top", 100)), self.page)
            body = {"@odata.context": "x", "value": [_selected(item, call) for item in items[start : start + size]]}
            query = {name: value for name, value in asked.items() if name != "$skiptoken"}
            following = f"{self.base_url}/{call.path}?{urlencode({**query, '$skiptoken': start + size})}"
            self._send(call, {**body, **({"@odata.nextLink": following} if start + size < len(items) else {})})
            return
        start = int(asked.get("after" if self.api == "okta" else "pageToken", "t0")[1:])
        size = min(int(asked.get("limit" if self.api == "okta" else "maxResults", 100)), self.page)
        found, following = items[start : start + size], f"t{start + size}" if start + size < len(items) else ""
        if self.api == "okta":
            url = f"{self.base_url}/{call.path}"
            links = [f'<{url}>; rel="self"']
            links += [f'<{url}?{urlencode({"after": following, "limit": size})}>; rel="next"'] if following else []
            self._send(call, found, {"Link": ", ".join(links)})
            return
        body = {"kind": f"admin#directory#{name}", "etag": "x", **({name: found} if found else {})}
        self._send(call, {**body, **({"nextPageToken": following} if following else {})})

    def _delta(self, call: Call, name: str) -> None:
        token = call.parameters["$deltatoken"]
        start = len(self.log) if token == "latest" else int(token)
        end = min(start + self.page, len(self.log))
        link = f"{self.base_url}/{name}/delta?%24deltatoken={end}"
        entries = [entry for set_, entry in self.log[start:end] if set_ == name]
        self._send(call, {"value": entries, "@odata.deltaLink" if end == len(self.log) else "@odata.nextLink": link})

    def _send(self, call: Call, body: object, headers: Mapping[str, str] | None = None) -> None:
        call.answer(json.dumps(body).replace(f'"{DEEP}"', self.deep).encode(), headers=headers)

    def grant(self, form: Mapping[str, str], header: str) -> tuple[int, object]:
        """The token endpoint."""
        if self.token_answers:
            return self.token_answers.pop(0)
        if form.get("grant_type") == ASSERTION:
            claims = jwt.decode(form["assertion"], KEY).claims
            is_right = (claims["iss"], claims["sub"]) == ("usher@project.example", "admin@x.example")
            is_right = is_right and claims["aud"] == f"{self.url}/token" and "readonly" in claims["scope"]
        else:
            is_right = b64decode(header.removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"
        if not is_right:
            return 401, {"error": "invalid_client", "error_description": f"no {SECRET}"}
        self.tokens.append(f"{TOKEN}-{len(self.tokens)}")
        return 200, {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": self.lifetime}


def _selected(item: Any, call: Call) -> object:
    names = call.parameters.get("$select")
    return item if names is None else {name: item[name] for name in names.split(",") if name in item}


class Handler(BaseHTTPRequestHandler):
    """Answers the calls of one connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True
    provider: IdentityProvider

    def setup(self) -> None:
        super().setup()
        self.provider.connections += 1

    def do_GET(self) -> None:
        provider, parts = self.provider, urlsplit(self.path)
        path = parts.path.removeprefix(BASES[provider.api]).strip("/")
        call = Call(self, path, {name: values[0] for name, values in parse_qs(parts.query).items()})
        with provider.lock:
            provider.calls.append((path, call.parameters))
            provider.running += 1
            provider.most_running = max(provider.most_running, provider.running)
        try:
            if provider.fault(call):
                return
            if provider.authorization(self.headers.get("Authorization", "")):
                provider.serve(call)
            else:
                call.answer({"error": f"no {SECRET}"}, status=401)
        finally:
            with provider.lock:
                provider.running -= 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        status, answer = self.provider.grant(form, self.headers.get("Authorization", ""))
        Call(self, "token", form).answer(answer, status=status, headers={"Location": "/"} if status == 302 else None)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignores clients that close the connection in the middle of an answer."""


@contextmanager
def identity_provider(api: str) -> Iterator[IdentityProvider]:
    """A running provider without users."""
    provider = IdentityProvider(api)
    server = _Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"provider": provider}))
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Faults.


def at(path: str, number: int, act: Callable[[Call], object], times: int = 10**6) -> Fault:
    """Acts at the calls of a path from this number on, counted from 0, so many times."""
    count = 0

    def fault(call: Call) -> bool:
        nonlocal count
        if call.path != path:
            return False
        count += 1
        if not number < count <= number + times:
            return False
        act(call)
        return True

    return fault


def status(code: int, **headers: str) -> Callable[[Call], object]:
    """An error with headers, whose names have ``_`` for ``-``."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda call: call.answer({"error": SECRET}, status=code, headers=names)


def answer(body: object, **headers: str) -> Callable[[Call], object]:
    """A body with success."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda call: call.answer(body, headers=names)


def drip(call: Call) -> None:
    """Sends a byte at intervals, for ten seconds."""
    call.handler.send_response(200)
    call.handler.send_header("Content-Length", "1000")
    call.handler.end_headers()
    for _ in range(100):
        call.handler.wfile.write(b" ")
        call.handler.wfile.flush()
        time.sleep(0.1)


def hang(call: Call) -> None:
    """Sends no answer for ten seconds."""
    time.sleep(10)


def endless(call: Call) -> None:
    """Sends a gigabyte."""
    call.handler.send_response(200)
    call.handler.send_header("Content-Length", str(1024**3))
    call.handler.end_headers()
    for _ in range(1024):
        call.handler.wfile.write(b"[" + b"1," * (512 * 1024 - 1) + b" ")


def cut_off(call: Call) -> None:
    """Sends half an answer."""
    call.handler.send_response(200)
    call.handler.send_header("Content-Length", "1000")
    call.handler.end_headers()
    call.handler.wfile.write(b"[" * 500)
    call.handler.close_connection = True
