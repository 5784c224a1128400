"""A simulated collaboration backend with configurable misbehaviour, in memory or on loopback.

It is written from the API reference alone, and shares no types, tables or parser with Usher or the self-hosted backend.
So it does not share their assumptions.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

import requests
from urllib3.exceptions import ProtocolError
from werkzeug.wrappers import Request, Response

TROUBLES = (
    "items fail",
    "items fail, 500 with details",
    "items fail, 500 with details of those alone",
    "items are not mentioned",
    "answer is lost",
    "call is lost",
    "throttled",
    "broken before",
    "broken after",
    "unavailable",
    "success without a word about items",
)
"""Possible misbehaviours of a call. All responses are truthful, so a careful client can handle each of them."""

EXTENDED = {
    "/organizations/add", "/organizations/update", "/organizations/delete",
    "/organizations/access/disablestate/update", "/organizations/folders/get", "/organizations/folders/delete",
    "/organizations/folders/access/update", "/organizations/documents/add", "/organizations/documents/update",
    "/organizations/documents/get", "/organizations/documents/move", "/organizations/documents/access/update",
    "/organizations/usergroups/add",
}  # fmt: skip
"""Optional operations, by path without version."""

Data = dict[str, Any]


class RefusedError(Exception):
    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class Contents:
    """The content of the backend."""

    def __init__(self) -> None:
        self.organizations: dict[str, Data] = {}
        self.folders: dict[tuple[str, str], Data] = {}
        self.documents: dict[tuple[str, str], Data] = {}
        self.groups: dict[tuple[str, str], set[str]] = {}
        self.people: dict[tuple[str, str, str], dict[str, Data]] = {}
        """(organization, level, container) → user → fields"""

    def below(self, organization: str, folder: str) -> list[str]:
        """The folder and all folders below it."""
        found = [folder]
        for one in found:
            found += [name for (where, name), it in self.folders.items() if where == organization and it["in"] == one]
        return found

    def drop_folder(self, organization: str, folder: str, spared: Callable[[str], bool]) -> dict[str, bool]:
        """Deletes a folder. Returns each item in it → whether it was deleted; the others keep their place."""
        gone: dict[str, bool] = {}
        folders = self.below(organization, folder)
        for key in [key for key, it in self.documents.items() if key[0] == organization and it["in"] in folders]:
            gone[key[1]] = not spared(key[1])
            if gone[key[1]]:
                del self.documents[key]
                self.people.pop((organization, "document", key[1]), None)
            else:
                self.documents[key]["in"] = ""
        for name in folders:
            gone.setdefault(name, True)
            del self.folders[organization, name]
            self.people.pop((organization, "folder", name), None)
        return gone

    def drop_organization(self, organization: str) -> None:
        del self.organizations[organization]
        tables: tuple[dict[Any, Any], ...] = (self.folders, self.documents, self.groups, self.people)
        for table in tables:
            for key in [key for key in table if key[0] == organization]:
                del table[key]


class Backend:
    """Answers calls; ``percent`` of them are subject to one of ``troubles``."""

    def __init__(self, random: Random) -> None:
        self.contents = Contents()
        self.random = random
        self.troubles: tuple[str, ...] = ()
        self.percent = 0.0
        self.lacks: set[str] = set()
        self.happened: Counter[str] = Counter()
        self.failed_by_path: Counter[str] = Counter()
        """By path, the number of items that failed and were reported as failed."""
        self.writes = 0
        self.lock = threading.Lock()
        self._trouble: str | None = None

    # One call.

    def __call__(self, environ: Any, start_response: Any) -> Any:
        """The WSGI interface, for ``tests.wsgi``."""
        request = Request(environ)
        with self.lock:
            answer = self.answer(request.path, json.loads(request.get_data())["data"])
        if answer is None:
            raise requests.ConnectionError(ProtocolError("Connection aborted."))
        code, reported, headers = answer
        return Response(json.dumps(reported), code, headers, content_type="application/json")(environ, start_response)

    def answer(self, path: str, data: Data) -> tuple[int, Data, dict[str, str]] | None:
        """Status, body and headers; None: the connection breaks."""
        route = "/" + path.split("/", 2)[2]
        if route in self.lacks:
            return 404, {}, {}
        is_read = route.endswith("/get")
        self.writes += not is_read
        self._trouble = self.random.choice(self.troubles) if self.random.random() * 100 < self.percent else None
        trouble = self._trouble
        if trouble is not None:
            self.happened[trouble] += 1
        match trouble:
            case "throttled":
                return 429, _error("RESOURCE_EXHAUSTED", "slow down"), {"Retry-After": "1"}
            case "broken before":
                return 500, _error("INTERNAL", "something broke"), {}
            case "unavailable":
                return 503, {}, {}
            case "call is lost":
                return None
        try:
            reported = getattr(self, route.strip("/").replace("/", "_"))(data)
        except RefusedError as refusal:
            return refusal.code, _error(refusal.status, str(refusal)), {}
        if trouble == "answer is lost":
            return None
        if trouble == "broken after":
            return 500, _error("INTERNAL", "something broke"), {}
        if is_read:
            return 200, {"result": {"status": "success", "message": "Read.", **reported}}, {}
        return self._respond(route, reported)

    def _respond(self, route: str, reported: tuple[dict[str, Data], bool]) -> tuple[int, Data, dict[str, str]]:
        items, promised = reported
        failed = [name for name, item in items.items() if not item["success"]]
        self.failed_by_path[route] += sum(items[name].get("code") == "internal" for name in failed)
        trouble = self._trouble or ""
        if trouble.startswith("items fail, 500") and failed:
            named = failed if trouble.endswith("alone") else list(items)
            details = {name: items[name] for name in named}
            return 500, {"error": {"status": "INTERNAL", "message": "In part.", "details": details}}, {}
        if trouble == "items are not mentioned" and promised:
            items = {name: item for name, item in items.items() if self.random.random() < 0.5}
        data: Data | None = items
        if not promised and not failed:
            data = None if trouble == "success without a word about items" or self.random.random() < 0.5 else items
        return 200, {"result": {"status": "success", "message": "Done.", "data": data}}, {}

    def _fails(self, _name: str) -> bool:
        return (self._trouble or "").startswith("items fail") and self.random.random() < 0.5

    def _each(self, names: Iterable[str], do: Callable[[str], str | None]) -> dict[str, Data]:
        """Applies ``do`` to each item; it returns an error as ``code`` and message."""
        results: dict[str, Data] = {}
        for name in names:
            problem = "internal:Temporarily unavailable." if self._fails(name) else do(name)
            if problem is None:
                results[name] = {"success": True, "id": name, "message": "Done."}
            else:
                code, _, message = problem.partition(":")
                results[name] = {"success": False, "id": name, "message": message}
                if code:
                    results[name]["code"] = code
        return results

    def _organization(self, data: Data) -> str:
        name: str = data["organizationId"]
        if name not in self.contents.organizations:
            raise RefusedError(404, "NOT_FOUND", f"Organization {name} does not exist.")
        return name

    # Organizations.

    def organizations_get(self, data: Data) -> Data:
        wanted = data.get("organizationIds")
        found = [
            {"id": name, "organizationName": one.get("organizationName"), "disabled": one.get("disabled", False)}
            for name, one in self.contents.organizations.items()
            if wanted is None or name in wanted
        ]
        return {"data": found}

    def organizations_add(self, data: Data) -> Any:
        values = {one["organizationId"]: one for one in data["organizations"]}

        def add(name: str) -> str | None:
            if name in self.contents.organizations:
                return ":Organization already exists."
            self.contents.organizations[name] = dict(values[name])
            return None

        return self._each(values, add), True

    def organizations_update(self, data: Data) -> Any:
        values = {one["organizationId"]: one for one in data["organizations"]}

        def update(name: str) -> str | None:
            if name not in self.contents.organizations:
                return "not-found:Organization does not exist."
            self.contents.organizations[name] |= values[name]
            return None

        return self._each(values, update), True

    def organizations_delete(self, data: Data) -> Any:
        def drop(name: str) -> str | None:
            if name not in self.contents.organizations:
                return "not-found:Organization does not exist."
            self.contents.drop_organization(name)
            return None

        return self._each(data["organizationIds"], drop), True

    def organizations_access_disablestate_update(self, data: Data) -> Any:
        def change(name: str) -> str | None:
            if name not in self.contents.organizations:
                return "not-found:Organization does not exist."
            self.contents.organizations[name]["disabled"] = data["disabled"]
            return None

        return self._each(data["organizationIds"], change), True

    # Folders.

    def organizations_folders_get(self, data: Data) -> Data:
        organization = self._organization(data)

        def shown(name: str) -> Data:
            it = self.contents.folders[organization, name]
            inner = [
                key[1] for key, one in self.contents.folders.items() if key[0] == organization and one["in"] == name
            ]
            return {
                "folderId": name, "folderName": it["name"], "organizationId": organization,
                "parentFolderId": it["in"] or "root", "accessType": it["type"] or "organizationPrivate",
                "inheritAccessFromParent": it["type"] is None, "subFolders": [shown(one) for one in inner],
            }  # fmt: skip

        tops = [key[1] for key, it in self.contents.folders.items() if key[0] == organization and not it["in"]]
        if data.get("folderId"):
            if (organization, data["folderId"]) not in self.contents.folders:
                raise RefusedError(404, "NOT_FOUND", "Folder does not exist.")
            tops = [data["folderId"]]
        return {"data": [shown(one) for one in tops]}

    def organizations_folders_add(self, data: Data) -> Any:
        if data.get("createOrganization"):
            self.contents.organizations.setdefault(data["organizationId"], {})
        organization = self._organization(data)
        values = {one["folderId"]: one for one in data["folders"]}

        def add(name: str) -> str | None:
            above = values[name].get("parentFolderId", "root")
            if (organization, name) in self.contents.folders:
                return "already-exists:The folder is there."
            if above != "root" and (organization, above) not in self.contents.folders:
                return ":The parent folder was not found."
            self.contents.folders[organization, name] = {
                "name": values[name].get("folderName"),
                "in": "" if above == "root" else above,
                "type": values[name].get("accessType"),
            }
            return None

        return self._each(values, add), True

    def organizations_folders_update(self, data: Data) -> Any:
        organization = self._organization(data)
        values = {one["folderId"]: one for one in data["folders"]}

        def update(name: str) -> str | None:
            it = self.contents.folders.get((organization, name))
            if it is None:
                return ":Folder does not exist."
            above = values[name].get("parentFolderId", it["in"] or "root")
            if above != "root":
                if (organization, above) not in self.contents.folders:
                    return ":The parent folder was not found."
                if above in self.contents.below(organization, name):
                    return ":A folder cannot be put into itself."
            it["in"] = "" if above == "root" else above
            it["name"] = values[name].get("folderName", it["name"])
            return None

        return self._each(values, update), True

    def organizations_folders_access_update(self, data: Data) -> Any:
        organization = self._organization(data)

        def change(name: str) -> str | None:
            it = self.contents.folders.get((organization, name))
            if it is None:
                return "not-found:No such folder."
            it["type"] = None if data.get("inheritFromParent") else data["accessType"]
            return None

        return self._each(data["folderIds"], change), True

    def organizations_folders_delete(self, data: Data) -> Any:
        organization, folder = self._organization(data), data["folderId"]
        if (organization, folder) not in self.contents.folders:
            raise RefusedError(404, "NOT_FOUND", "Folder does not exist.")
        if self._fails(folder):
            return {folder: {"success": False, "message": "Temporarily unavailable.", "code": "internal"}}, False
        gone = self.contents.drop_folder(organization, folder, self._fails)
        return {
            name: {"success": done, "message": "Deleted." if done else "Temporarily unavailable."}
            | ({} if done else {"code": "internal"})
            for name, done in gone.items()
        }, False

    # Documents.

    def organizations_documents_get(self, data: Data) -> Data:
        organization, wanted, size = self._organization(data), data.get("documentIds"), data.get("pageSize", 1000)
        found = sorted(
            key[1]
            for key, it in self.contents.documents.items()
            if key[0] == organization
            and (wanted is None or key[1] in wanted)
            and data.get("folderId", it["in"]) == it["in"]
        )
        start = int(data.get("pageToken") or 0)
        page = found[start : start + size]
        more = {"pageToken": str(start + size)} if start + size < len(found) else {}
        displayed = [
            {"id": name, "documentName": it["name"], "accessType": it["type"], "disabled": False}
            for name in page
            for it in (self.contents.documents[organization, name],)
        ]
        return {"data": displayed, **more}

    def organizations_documents_add(self, data: Data) -> Any:
        organization, folder = self._organization(data), data.get("folderId", "")
        if folder and (organization, folder) not in self.contents.folders:
            raise RefusedError(404, "NOT_FOUND", "Folder does not exist.")
        values = {one["documentId"]: one for one in data["documents"]}

        def add(name: str) -> str | None:
            if (organization, name) in self.contents.documents:
                return "already-exists:It is there."
            self.contents.documents[organization, name] = {
                "name": values[name].get("documentName"), "in": folder, "type": None,
            }  # fmt: skip
            return None

        return self._each(values, add), True

    def organizations_documents_update(self, data: Data) -> Any:
        organization = self._organization(data)
        values = {one["documentId"]: one for one in data["documents"]}

        def update(name: str) -> str | None:
            if (organization, name) not in self.contents.documents:
                return "not-found:No such document."
            self.contents.documents[organization, name]["name"] = values[name].get("documentName")
            return None

        return self._each(values, update), True

    def organizations_documents_move(self, data: Data) -> Any:
        organization, folder = self._organization(data), data["folderId"]
        if folder != "root" and (organization, folder) not in self.contents.folders:
            raise RefusedError(404, "NOT_FOUND", "Folder does not exist.")

        def move(name: str) -> str | None:
            if (organization, name) not in self.contents.documents:
                return "not-found:No such document."
            self.contents.documents[organization, name]["in"] = "" if folder == "root" else folder
            return None

        return self._each(data["documentIds"], move), False

    def organizations_documents_access_update(self, data: Data) -> Any:
        organization = self._organization(data)

        def change(name: str) -> str | None:
            if (organization, name) not in self.contents.documents:
                return "not-found:No such document."
            self.contents.documents[organization, name]["type"] = data["accessType"]
            return None

        return self._each(data["documentIds"], change), True

    def organizations_documents_delete(self, data: Data) -> Any:
        organization = self._organization(data)

        def drop(name: str) -> str | None:
            # An already-missing document is reported with success.
            self.contents.documents.pop((organization, name), None)
            self.contents.people.pop((organization, "document", name), None)
            return None

        return self._each(data["documentIds"], drop), True

    # Groups.

    def organizations_usergroups_add(self, data: Data) -> Any:
        organization = self._organization(data)

        def add(name: str) -> str | None:
            if (organization, name) in self.contents.groups:
                return "already-exists:It is there."
            self.contents.groups[organization, name] = set()
            return None

        return self._each([one["groupId"] for one in data["organizationUserGroups"]], add), True

    def organizations_usergroups_users_add(self, data: Data) -> Any:
        organization = self._organization(data)
        members = self.contents.groups.setdefault((organization, data["organizationUserGroupId"]), set())
        return self._each(data["userIds"], members.add), True

    def organizations_usergroups_users_delete(self, data: Data) -> Any:
        organization = self._organization(data)
        members = self.contents.groups.get((organization, data["organizationUserGroupId"]), set())

        def drop(name: str) -> str | None:
            if name not in members:
                return ":User does not exist."
            members.remove(name)
            return None

        return self._each(sorted(members) if data.get("deleteAll") else data["userIds"], drop), True

    # Users.

    def _level(self, data: Data) -> tuple[str, str, str]:
        organization = data["organizationId"]
        if data.get("documentId") is not None:
            return organization, "document", data["documentId"]
        if data.get("folderId") is not None:
            return organization, "folder", data["folderId"]
        return organization, "organization", ""

    def users_get(self, data: Data) -> Data:
        organization, size = self._organization(data), data.get("pageSize", 1000)
        people = self.contents.people

        def shown(of: dict[str, Data]) -> list[Data]:
            wanted = data.get("userIds")
            return [
                {"userId": name, "name": one.get("name"), "email": one.get("email")}
                for name, one in sorted(of.items())
                if wanted is None or name in wanted
            ]

        if data.get("allDocuments"):
            by_document = {key[2]: shown(of) for key, of in people.items() if key[:2] == (organization, "document")}
            if data.get("groupByDocumentId"):
                return {"data": by_document}
            return {"data": [one for some in by_document.values() for one in some]}
        if data.get("organizationUserGroupIds"):
            members: set[str] = set()
            for group in data["organizationUserGroupIds"]:
                members |= self.contents.groups.get((organization, group), set())
            found = shown({name: {} for name in members})
        else:
            found = shown(people.get(self._level(data), {}))
        start = int(data.get("pageToken") or 0)
        more = {"nextPageToken": str(start + size)} if start + size < len(found) else {}
        return {"data": found[start : start + size], **more}

    def users_add(self, data: Data) -> Any:
        organization, level, container = place = self._level(data)
        self.contents.organizations.setdefault(organization, {})
        there = {"folder": self.contents.folders, "document": self.contents.documents}.get(level)
        if there is not None and (organization, container) not in there:
            raise RefusedError(404, "NOT_FOUND", f"The {level} does not exist.")
        values = {one["userId"]: one for one in data["users"]}
        people = self.contents.people.setdefault(place, {})

        def add(name: str) -> str | None:
            if name in people:
                return ":User already exists."
            people[name] = {"accessRole": "editor", **values[name]}
            return None

        return self._each(values, add), True

    def users_update(self, data: Data) -> Any:
        people = self.contents.people.get(self._level(data), {})
        values = {one["userId"]: one for one in data["users"]}

        def update(name: str) -> str | None:
            if name not in people:
                return ":User does not exist."
            people[name] |= values[name]
            return None

        return self._each(values, update), True

    def users_delete(self, data: Data) -> Any:
        organization, level, _container = place = self._level(data)

        def drop(name: str) -> str | None:
            people = self.contents.people.get(place, {})
            if name not in people:
                return ":User does not exist."
            del people[name]
            if level == "organization":  # which removes the access to all its documents and data
                for key, some in self.contents.people.items():
                    if key[0] == organization:
                        some.pop(name, None)
                for group, members in self.contents.groups.items():
                    if group[0] == organization:
                        members.discard(name)
            return None

        return self._each(data["userIds"], drop), True


def _error(status: str, message: str) -> Data:
    return {"error": {"status": status, "message": message}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    backend: Backend

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.backend.lock:
            answer = self.backend.answer(self.path, body["data"])
        if answer is None:
            self.close_connection = True
            return
        code, reported, headers = answer
        raw = json.dumps(reported).encode()
        self.send_response(code)
        for name, value in (headers | {"Content-Type": "application/json", "Content-Length": str(len(raw))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Writes no log."""


@contextmanager
def serving(backend: Backend) -> Iterator[str]:
    """Serves the backend on a free port of loopback; yields the base URL."""
    handler = type("Handler", (_Handler,), {"backend": backend})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
