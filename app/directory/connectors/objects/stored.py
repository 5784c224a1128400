"""Reads objects of Amazon S3 and compatible stores, Google Cloud Storage and Azure Blob Storage as streams.

An object is read in parts, each with a request of its own. The condition of each is the ETag of the first response, so
that all parts are of one version. A slow reader keeps no connection open, and memory contains one part.
"""

import re
from datetime import timedelta
from io import RawIOBase
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import Buffer

from app.directory.connector import ReadError
from app.directory.connectors.objects.settings import StoreSettings
from app.foundation.outbound.urls import address_of

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

PART_BYTES = 8 * 1024 * 1024

_MAX_RETRIES = 4
"""The retries of a request that the store refuses for the moment, or whose connection is lost."""

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}

_CAUSES = (
    (
        r"169\.254\.|/latest/(api|meta-data)/|token request|OpenCredentials|MissingAccount|PanicException",
        "there are no usable credentials: set {credentials}, or give this machine a role",
    ),
    (r"status code: 404|FileNotFoundError", "does not exist; check the bucket and the key"),
    (r"PreconditionError", "was replaced while it was being read; the next read uses the new version"),
    (
        r"status code: 40[13]|PermissionDenied|Unauthenticated",
        "{store} refuses access: let {credentials} be of an account that may read the object, if it exists",
    ),
    (r"without LOCATION|AuthorizationHeaderMalformed", "{store}: set store.region to the region of the bucket"),
    (r"BadScheme", "the environment names a store without TLS; name it in store.endpoint, which has allow_plaintext"),
    (r"dns error", "{store}: the name cannot be resolved; check store.endpoint and store.region"),
    (r"ConnectionRefused", "{store}: nothing listens there (connection refused); check store.endpoint"),
    (r"kind: Connect[\s\S]*TimedOut", "{store}: no connection within connect_timeout; check store.endpoint"),
    (r"TimedOut", "{store}: a response took longer than answer_timeout; check store.endpoint and the store"),
    (r"NotPartial", "{store} returned all of it instead of a part; store it without Content-Encoding"),
    (r"kind: Connect", "{store}: no connection, or no TLS that this machine trusts; check store.endpoint"),
    (r"kind: (Interrupted|Body)|IncompleteBody", "the connection to {store} was lost, and several retries failed"),
    (r"status code: (?P<status>\d{3})", "{store} answers with {status}"),
    (r"", "{store} does not answer as an object store does; check store.endpoint"),
)
"""Patterns of errors, with the message. The first match is used. The errors themselves may contain signed URLs."""


class StoredObject(RawIOBase):
    """The bytes of an object in one version. Raises ``ReadError``."""

    def __init__(self, url: str, settings: StoreSettings) -> None:
        """Requests the version. ``url``: a usable URL."""
        self._url = url
        self._settings = settings
        self._scheme, _, path = url.partition("://")
        self._bucket, _, self._key = path.partition("/")
        self._part = memoryview(b"")
        self._at = 0
        """The offset behind the part."""
        self._store: Any = None
        meta = self._get({"head": True}).meta
        etag = meta["e_tag"]
        if not etag:
            self._fail("the response has no ETag")
        self.etag = etag
        """Identifies the version."""
        self.size = meta["size"]
        """The size of the object, in bytes."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        if not self._part and self._at < self.size:
            self._part = memoryview(b"")  # releases the memory of the previous part
            self._part = self._next_part()
        target = memoryview(buffer)
        count = min(len(target), len(self._part))
        target[:count] = self._part[:count]
        self._part = self._part[count:]
        return count

    def _next_part(self) -> memoryview:
        end = min(self._at + PART_BYTES, self.size)
        result = self._get({"range": (self._at, end), "if_match": self.etag})
        if result.meta["e_tag"] != self.etag:
            self._fail("PreconditionError")
        try:
            part = memoryview(result.bytes())
        except Exception as error:  # noqa: BLE001 - as in _get
            self._fail(f"{type(error).__name__} {error}")
        if len(part) != end - self._at:
            self._fail("IncompleteBody")
        self._at = end
        return part

    def _get(self, options: "GetOptions") -> "GetResult":
        try:
            import obstore  # noqa: PLC0415 - an extra

            self._store = self._store or self._new_store()
            return obstore.get(self._store, self._key, options=options)
        except ModuleNotFoundError:
            raise ReadError(
                f"{self._url}: the library for object stores is not installed: pip install 'usher[objects]' adds it"
            ) from None
        # The library raises many classes, and one that is no Exception if a value of the environment is invalid.
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            self._fail(f"{type(error).__name__} {error}")

    def _new_store(self) -> Any:
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415 - an extra

        settings = self._settings
        # The variable AWS_ENDPOINT_URL_S3 has precedence over ``endpoint`` of S3.
        kinds = {"s3": (S3Store, "aws_endpoint_url_s3"), "gs": (GCSStore, "base_url"), "az": (AzureStore, "endpoint")}
        new_store, endpoint_key = kinds[self._scheme]
        config = {endpoint_key: settings.endpoint} if settings.endpoint else {}
        if settings.region and self._scheme == "s3":
            config["region"] = settings.region
        connect, answer = timedelta(seconds=settings.connect_timeout), timedelta(seconds=settings.answer_timeout)
        client = {
            "allow_http": settings.endpoint.startswith("http:"),
            "connect_timeout": connect,
            "timeout": connect + answer,
        }
        retry = {"max_retries": _MAX_RETRIES, "retry_timeout": answer}
        return new_store(self._bucket, config=config, client_options=client, retry_config=retry)

    def _fail(self, error: str) -> NoReturn:
        """Raises ``ReadError`` with the message of an error of the library."""
        found = ((re.search(pattern, error), message) for pattern, message in _CAUSES)
        match, message = next((match, message) for match, message in found if match is not None)
        store = address_of(self._settings.endpoint) if self._settings.endpoint else "the store"
        facts = {"store": store, "credentials": _CREDENTIALS[self._scheme], **match.groupdict()}
        raise ReadError(f"{self._url}: {message.format(**facts)}") from None
