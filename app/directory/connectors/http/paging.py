"""Reads lists of an API page by page. A list that is not read to its end is incomplete, which must be reported."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from urllib.parse import urlsplit

import orjson
import requests

from app.directory.connector import CursorRefusedError, ReadError
from app.directory.connectors.http.client import HttpClient, JsonResponse, RefusedError
from app.directory.connectors.http.settings import ApiPreset

MAX_ID_BYTES = 255

MAX_EMPTY_PAGES = 100
"""Empty pages in a row that name a further page. Servers that filter a list page by page have some."""

MAX_CHANGES = 2_000
"""More changes lead to a complete read. Each costs a request."""


class IncompleteError(Exception):
    """A list was not read to its end. The message is one line without secrets."""


class PageReader:
    def __init__(self, client: HttpClient, preset: ApiPreset) -> None:
        self._client = client
        self._preset = preset
        self._paging = preset.paging

    def pages(self, path: str, query: Mapping[str, str], items_of: str) -> Iterator[Sequence[object]]:
        """The items of a list, page by page. ``items_of``: the name of the list in its body.

        Raises ``ReadError``, and ``IncompleteError`` if a page stays refused or repeats, if pages before the end are
        empty, or if the server's total is not reached.
        """
        url, parameters = self._client.url_of(path), dict(query)
        seen: set[bytes] = set()
        count = empty_pages = 0
        total: int | None = None
        while True:
            response = self._get(url, {**parameters, **self._position(count)})
            items = self._items(response.body, path, items_of)
            count += len(items)
            empty_pages = 0 if items else empty_pages + 1
            if items:
                _note(seen, _bytes_of(items, response), f"{path}: a page repeats after {count:,} objects")
            if self._paging.style == "scim":
                total = _total(response.body, path, total)
            yield items
            following = self._following(response, items, path, is_end=total is not None and count >= total)
            if following is None:
                break
            if empty_pages > (MAX_EMPTY_PAGES if self._paging.style in ("link", "token") else 0):
                raise IncompleteError(f"{path}: a page is empty and names a further one, after {count:,} objects")
            if following:
                _note(seen, following.encode(), f"{path}: the link to the next page repeats after {count:,} objects")
            if self._paging.style == "token":
                parameters[self._paging.parameter] = following
            elif following:
                # The link has its own parameters.
                url, parameters = self._client.followed(following, response.url), {}
        if total is not None and count != total:
            raise IncompleteError(f"{path}: has {total:,} objects, but {count:,} were returned")

    def count(self, path: str, query: Mapping[str, str]) -> int:
        """The number of objects, from a resource with it. Raises ``ReadError`` and ``IncompleteError``."""
        body = self._get(self._client.url_of(path), query).body
        number = body.get("count") if isinstance(body, dict) else body
        if type(number) is not int:
            raise ReadError(f"{path}: the response is not a number of objects")
        return number

    def single(self, path: str, query: Mapping[str, str]) -> object:
        """The JSON at a path. Raises ``ReadError``, and ``IncompleteError`` also if there is nothing (404)."""
        try:
            return self._get(self._client.url_of(path), query).body
        except RefusedError as error:
            if error.status == requests.codes.not_found:
                raise IncompleteError(str(error)) from None
            raise

    def first_link(self, path: str, query: Mapping[str, str]) -> str:
        """The link to the changes from now on. Raises ``ReadError``."""
        url = self._client.url_of(path)
        link = value_at(self._client.get(url, query).body, self._preset.delta_link)
        if not isinstance(link, str):
            raise ReadError(f"{path}: the response has no link {self._preset.delta_link} to the next changes")
        return self._client.followed(link, url)

    def changes(self, link: str, id_key: str) -> tuple[Mapping[str, bool], str]:
        """The ids of changed objects → whether they were removed, and the link to the next changes.

        Raises ``ReadError``, ``IncompleteError``, and ``CursorRefusedError`` if the server does not accept the link, or
        so much has changed that a complete read is faster.
        """
        changed: dict[str, bool] = {}
        seen: set[bytes] = set()
        url = self._client.url_of("")
        while True:
            url = self._client.followed(link, url)
            _note(seen, url.encode(), "the link to further changes repeats")
            try:
                body = self._get(url, {}).body
            except RefusedError as error:
                raise CursorRefusedError(f"the server does not accept the link to the changes: {error}") from None
            for item in self._items(body, urlsplit(url).path, ""):
                id_ = value_at(item, id_key)
                if not isinstance(id_, str) or not id_ or "\0" in id_ or len(id_) > MAX_ID_BYTES:
                    raise CursorRefusedError(f"a change has no {id_key}")
                changed[id_] = isinstance(item, dict) and self._preset.removed in item
            if len(changed) > MAX_CHANGES:
                raise CursorRefusedError(f"there are more than {MAX_CHANGES:,} changes")
            following, last = self._next(body, urlsplit(url).path), value_at(body, self._preset.delta_link)
            if isinstance(last, str) and not following:
                return changed, self._client.followed(last, url)
            if not following:
                raise IncompleteError(f"the changes have neither {self._paging.next} nor {self._preset.delta_link}")
            link = following

    def _position(self, count: int) -> Mapping[str, str]:
        """The query parameter with which a page begins after ``count`` items. Empty if a link or token names it."""
        if self._paging.style == "scim":
            return {"startIndex": str(count + 1)}
        return {self._paging.parameter: str(count)} if self._paging.style == "offset" else {}

    def _get(self, url: str, parameters: Mapping[str, str]) -> JsonResponse:
        try:
            return self._client.get(url, parameters)
        except RefusedError as error:
            if error.is_temporary:
                raise IncompleteError(str(error)) from None
            raise

    def _items(self, body: object, path: str, items_of: str) -> Sequence[object]:
        key = self._preset.items.replace("{set}", items_of)
        items = value_at(body, key) if key else body
        if items is None and isinstance(body, dict) and self._preset.empty_if in body:
            return []
        if not isinstance(items, list):
            raise ReadError(f"{path}: the response has no list {key}".rstrip() + "; check base_url")
        return items

    def _following(self, response: JsonResponse, items: Sequence[object], path: str, *, is_end: bool) -> str | None:
        """The link or token of the next page, empty if it is found by number. None: there is no next page.

        Raises ``ReadError`` and ``IncompleteError`` if there is one that cannot be read.
        """
        style = self._paging.style
        if style == "none" and response.next_link:
            raise IncompleteError(f"{path}: the response links to a next page; set paging: {{style: link_header}}")
        if style == "link_header":
            return response.next_link or None
        if style in ("link", "token"):
            return self._next(response.body, path) or None
        if style == "scim":
            return None if is_end or not items else ""
        # Servers may return fewer objects than requested, so only an empty page is the end.
        return "" if style == "offset" and items else None

    def _next(self, body: object, path: str) -> str:
        """The link or token of the next page in a body. Empty if there is none. Raises ``ReadError``."""
        following = value_at(body, self._paging.next)
        if self._paging.style == "token" and type(following) is int:
            return str(following)
        if following is not None and not isinstance(following, str):
            raise ReadError(f"{path}: {self._paging.next} is not text")
        return following or ""


def value_at(body: object, key: str) -> object:
    """The value of a key, or of keys with dots between them. None if there is none."""
    if isinstance(body, dict) and key not in body and "." in key:
        first, _, rest = key.partition(".")
        return value_at(body.get(first), rest)
    return body.get(key) if isinstance(body, dict) else None


def _bytes_of(items: Sequence[object], response: JsonResponse) -> bytes:
    """The items as bytes, without the rest of the body, which may have a token of its own in each page."""
    try:
        return orjson.dumps(items)
    except orjson.JSONEncodeError:
        return response.content


def _note(seen: set[bytes], content: bytes, problem: str) -> None:
    """Adds the content to those seen. Raises ``IncompleteError`` if it was seen before."""
    digest = blake2b(content, digest_size=16).digest()
    if digest in seen:
        raise IncompleteError(problem)
    seen.add(digest)


def _total(body: object, path: str, before: int | None) -> int:
    """The total of a SCIM response. Raises ``IncompleteError`` if it is not the one ``before``."""
    total = value_at(body, "totalResults")
    if type(total) is not int:
        raise ReadError(f"{path}: the response has no number totalResults; check that base_url is the one of SCIM")
    if before is not None and total != before:
        raise IncompleteError(f"{path}: totalResults changed from {before:,} to {total:,} during the read")
    return total
