from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.worlds.clock import NOON

from .conftest import Answerer, BackendWorld, Caller, ScriptedProvider, WorldMaker

MakeProvider = Callable[[Answerer], ScriptedProvider]
NOON_SECONDS = int(NOON.timestamp())


def setting(tenant: Caller) -> Caller:
    """acme: `specs` (restricted) holds `drafts`; `handbook` is at the top, `roadmap` in `drafts`; `news` is public."""
    tenant("add_users", organizationId="acme", users=[{"userId": "ada"}, {"userId": "bob", "accessRole": "viewer"}])
    tenant(
        "add_folder",
        organizationId="acme",
        folders=[{"folderId": "specs", "accessType": "restricted"}, {"folderId": "drafts", "parentFolderId": "specs"}],
    )
    tenant("add_documents", organizationId="acme", documents=[{"documentId": "handbook"}, {"documentId": "news"}])
    tenant("add_documents", organizationId="acme", folderId="drafts", documents=[{"documentId": "roadmap"}])
    tenant("update_document_access", organizationId="acme", documentIds=["news"], accessType="public")
    tenant("add_users", organizationId="acme", folderId="specs", users=[{"userId": "bob"}])
    tenant("add_users", organizationId="acme", folderId="drafts", users=[{"userId": "bob", "accessRole": "viewer"}])
    tenant("add_users", organizationId="other", users=[{"userId": "cleo"}])
    return tenant


def ask(tenant: Caller, **data: Any) -> Any:
    return tenant("get_permissions", **({"organizationId": "acme", "userIds": ["ada", "bob", "cleo"]} | data))


def brief(permissions: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Resource to role or error code, for one user."""
    return {
        resource: permission.get("accessRole") or permission["errorCode"]
        for section in permissions.values()
        for resource, permission in section.items()
    }


def test_decision_by_own_data(tenant: Caller) -> None:
    answer = ask(
        setting(tenant), folderIds=["specs", "drafts", "no"], documentIds=["handbook", "roadmap", "news", "no"]
    )

    no = "permission_denied"
    assert {user: brief(answer[user]["organization"] and answer[user]) for user in answer} == {
        "ada": {"acme": "editor", "specs": no, "drafts": no, "no": "does_not_exist"}
        | {"handbook": "editor", "roadmap": no, "news": "editor"},
        "bob": {"acme": "viewer", "specs": "editor", "drafts": "viewer", "no": "does_not_exist"}
        | {"handbook": "viewer", "roadmap": "viewer", "news": "viewer"},
        "cleo": {"acme": no, "specs": no, "drafts": no, "no": "does_not_exist"}
        | {"handbook": no, "roadmap": no, "news": "viewer"},
    }
    assert answer["bob"]["folders"]["drafts"] == {"accessRole": "viewer", "accessType": "restricted"}
    assert answer["bob"]["documents"]["roadmap"] == {"accessRole": "viewer", "accessType": "restricted"}
    assert answer["ada"]["documents"]["news"] == {"accessRole": "editor", "accessType": "public"}
    assert answer["ada"]["organization"]["acme"] == {"accessRole": "editor"}
    assert set(answer["ada"]["documents"]["no"]) == {"error", "errorCode"}


def test_unknown_organization(tenant: Caller) -> None:
    answer = ask(tenant, userIds=["ada"], folderIds=["f"], documentIds=["d"])

    assert set(brief(answer["ada"]).values()) == {"does_not_exist"}


def test_disabled_organization(tenant: Caller) -> None:
    setting(tenant)("disable_organizations", organizationIds=["acme"], disabled=True)

    assert brief(ask(tenant, documentIds=["news"])["ada"]) == {
        "acme": "permission_denied",
        "news": "permission_denied",
    }


def test_temporary_permissions(world: BackendWorld) -> None:
    tenant = setting(world.tenant())
    resources = [
        {"type": "organization", "id": "acme", "accessRole": "viewer"},
        {"type": "document", "id": "roadmap", "organizationId": "acme", "expiresAt": NOON_SECONDS + 60},
        {"type": "folder", "id": "specs", "organizationId": "acme", "accessRole": "viewer"},
    ]

    assert tenant("add_permissions", user={"userId": "dan"}, permissions={"resources": resources}) is None

    dan = ask(tenant, userIds=["dan"], folderIds=["specs"], documentIds=["roadmap"])["dan"]
    assert dan["organization"]["acme"] == {"accessRole": "viewer"}
    assert dan["folders"]["specs"]["accessRole"] == "viewer"
    assert dan["documents"]["roadmap"] == {
        "accessRole": "editor",
        "accessType": "restricted",
        "expiresAt": NOON_SECONDS + 60,
    }
    (entry,) = tenant("get_users", organizationId="acme", documentId="roadmap")
    assert entry == {"userId": "dan", "accessRole": "editor", "expiresAt": NOON_SECONDS + 60}

    world.clock.move_on(seconds=60)
    # A user with an expired entry can be added again.
    assert tenant("get_users", organizationId="acme", documentId="roadmap") == []
    there = {"organizationId": "acme", "documentId": "roadmap", "users": [{"userId": "dan"}]}
    assert tenant("update_users", **there)["dan"]["message"] == "User does not exist."
    # The folder's grant is the nearest that is left.
    assert ask(tenant, userIds=["dan"], documentIds=["roadmap"])["dan"]["documents"]["roadmap"] == {
        "accessRole": "viewer",
        "accessType": "restricted",
    }


def test_user_with_expired_access_can_be_added(world: BackendWorld) -> None:
    tenant = setting(world.tenant())
    document = {"type": "document", "id": "roadmap", "organizationId": "acme", "expiresAt": NOON_SECONDS + 60}
    tenant("add_permissions", user={"userId": "dan"}, permissions={"resources": [document]})
    there = {"organizationId": "acme", "documentId": "roadmap"}
    dan = [{"userId": "dan", "documentId": "mine"}]
    assert tenant("add_users", **there, users=dan)["dan"]["message"] == "User already exists."
    world.clock.move_on(seconds=60)
    tenant("add_notifications", **there, actionUser={"userId": "ada"}, displayBodyMessage="s3cret")
    assert tenant("get_notifications", organizationId="acme", userId="dan") == []

    assert tenant("add_users", **there, users=dan)["dan"]["message"] == "User added."
    # A ``documentId`` is not stored as metadata.
    assert tenant("get_users", **there) == [{"userId": "dan", "accessRole": "editor"}]
    assert (
        ask(tenant, userIds=["dan"], documentIds=["roadmap"])["dan"]["documents"]["roadmap"]["accessRole"] == "editor"
    )


def test_add_permissions_replaces_permissions(tenant: Caller) -> None:
    setting(tenant)
    document = {"type": "document", "id": "roadmap", "organizationId": "acme"}
    for grant in ({"accessRole": "viewer", "expiresAt": NOON_SECONDS + 60}, {}):
        tenant("add_permissions", user={"userId": "ada"}, permissions={"resources": [document | grant]})

    assert tenant("get_users", organizationId="acme", documentId="roadmap") == [
        {"userId": "ada", "accessRole": "editor"}
    ]


def test_new_entries_have_the_known_metadata(tenant: Caller) -> None:
    setting(tenant)
    tenant("update_users", organizationId="acme", users=[{"userId": "ada", "name": "Ada", "plan": 1}])
    resource = {"type": "document", "id": "roadmap", "organizationId": "acme"}
    tenant("add_permissions", user={"userId": "ada"}, permissions={"resources": [resource]})

    (entry,) = tenant("get_users", organizationId="acme", documentId="roadmap")
    assert (entry["name"], entry["plan"]) == ("Ada", 1)


@pytest.mark.parametrize(
    "missing",
    [
        {"type": "organization", "id": "no"},
        {"type": "folder", "id": "no", "organizationId": "acme"},
        {"type": "document", "id": "no", "organizationId": "acme"},
        {"type": "document", "id": "roadmap", "organizationId": "other"},
    ],
)
def test_add_permissions_is_all_or_nothing(tenant: Caller, missing: dict[str, str]) -> None:
    setting(tenant)
    resources = [{"type": "document", "id": "roadmap", "organizationId": "acme"}, missing]

    refused = tenant.refused("add_permissions", user={"userId": "dan"}, permissions={"resources": resources})

    assert refused[:2] == (404, "NOT_FOUND")
    assert tenant("get_users", organizationId="acme", documentId="roadmap") == []


def test_remove_permissions_keeps_other_levels(tenant: Caller) -> None:
    setting(tenant)
    resources = [
        {"type": "folder", "id": "drafts", "organizationId": "acme"},
        {"type": "document", "id": "never", "organizationId": "nobody"},
    ]

    assert tenant("remove_permissions", userId="bob", permissions={"resources": resources}) is None

    # The grant on the folder above is what is left.
    bob = ask(tenant, userIds=["bob"], folderIds=["drafts"])["bob"]
    assert brief(bob) == {"acme": "viewer", "drafts": "editor"}


def allow(results: Callable[[dict[str, Any]], dict[str, Any]]) -> Answerer:
    """Returns the ids of each question and the fields of `results`."""

    def answer(body: dict[str, Any], _: dict[str, str]) -> tuple[int, bytes]:
        data = [
            {
                "userId": request["userId"],
                "resourceId": request["resource"]["id"],
                "type": request["resource"]["type"],
                "organizationId": request["resource"]["organizationId"],
            }
            | results(request)
            for request in body["data"]["requests"]
        ]
        return 200, orjson.dumps({"data": data, "success": True, "statusCode": 200, "message": ""})

    return answer


def use(tenant: Caller, url: str, token: str = "s3cret") -> None:
    tenant(
        "update_permission_provider_config",
        usePermissionProvider=True,
        permissionProviderConfig={"permissionProviderUrl": url, "authToken": token},
    )


@pytest.fixture
def near(make_world: WorldMaker) -> Caller:
    """A tenant whose provider may be on loopback."""
    return setting(make_world(allow_private_urls=True).tenant())


def test_call_to_the_provider(near: Caller, make_provider: MakeProvider) -> None:
    noon = NOON_SECONDS * 1000

    def results(request: dict[str, Any]) -> dict[str, Any]:
        given: dict[str, dict[str, Any]] = {
            "roadmap": {"hasAccess": True, "accessRole": "viewer", "expiresAt": noon + 5999},
            "specs": {"hasAccess": True},
            "handbook": {"hasAccess": True, "accessRole": "editor", "expiresAt": noon},
        }
        return given.get(request["resource"]["id"], {"hasAccess": False})

    provider = make_provider(allow(results))
    use(near, provider.url)

    answer = ask(near, userIds=["zoe"], folderIds=["specs", "no"], documentIds=["roadmap", "handbook", "no"])

    assert answer["zoe"] == {
        "organization": {"acme": {"error": "The user has no access.", "errorCode": "permission_denied"}},
        "folders": {
            "specs": {"accessRole": "editor", "accessType": "restricted"},
            "no": {"error": "Folder does not exist.", "errorCode": "does_not_exist"},
        },
        "documents": {
            # Milliseconds become whole seconds, rather too early than too late.
            "roadmap": {"accessRole": "viewer", "accessType": "restricted", "expiresAt": NOON_SECONDS + 5},
            # An allow that is over is none.
            "handbook": {"error": "The user has no access.", "errorCode": "permission_denied"},
            "no": {"error": "Document does not exist.", "errorCode": "does_not_exist"},
        },
    }
    (asked,) = provider.asked
    assert [question["resource"]["id"] for question in asked] == ["acme", "specs", "roadmap", "handbook"]
    assert asked[2] == {
        "userId": "zoe",
        "resource": {"type": "document", "id": "roadmap", "organizationId": "acme", "source": "getPermissions"},
    }
    (headers,) = provider.headers
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["content-type"] == "application/json"


def test_many_questions_in_few_calls(near: Caller, make_provider: MakeProvider) -> None:
    provider = make_provider(allow(lambda _: {"hasAccess": True}))
    use(near, provider.url, "")
    documents = [f"d{number}" for number in range(30)]
    near("add_documents", organizationId="acme", documents=[{"documentId": document} for document in documents])

    answer = ask(near, userIds=[f"u{number}" for number in range(30)], documentIds=documents)

    assert [len(asked) for asked in provider.asked] == [500, 430]
    assert all(set(brief(permissions).values()) == {"editor"} for permissions in answer.values())
    assert "authorization" not in provider.headers[0]


def broken(raw: bytes, code: int = 200) -> Answerer:
    return lambda *_: (code, raw)


def doctored(change: Callable[[dict[str, Any]], None]) -> Answerer:
    """A response that allows everything, modified by `change`."""

    def answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, bytes]:
        code, raw = allow(lambda _: {"hasAccess": True})(body, headers)
        wire = orjson.loads(raw)
        change(wire)
        return code, orjson.dumps(wire)

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        broken(b"", 500),
        broken(b'{"data": [], "success": true}', 302),
        broken(b"no JSON"),
        broken(b"[]"),
        broken(b'{"success": true}'),
        broken(b" " * 9_000_000),
        doctored(lambda wire: wire.update(success=False)),
        doctored(lambda wire: wire["data"].pop()),
        doctored(lambda wire: wire["data"].append(wire["data"][0])),
        doctored(lambda wire: wire["data"].reverse()),
        doctored(lambda wire: wire["data"][0].update(userId="eve")),
        doctored(lambda wire: wire["data"][0].update(resourceId="other")),
        doctored(lambda wire: wire["data"][0].update(type="document")),
        doctored(lambda wire: wire["data"][0].update(organizationId="other")),
        doctored(lambda wire: wire["data"][0].pop("hasAccess")),
        doctored(lambda wire: wire["data"][0].update(hasAccess="true")),
        doctored(lambda wire: wire["data"][0].update(hasAccess=1)),
        doctored(lambda wire: wire["data"][0].update(accessRole="owner")),
        doctored(lambda wire: wire["data"][0].update(accessRole=["editor"])),
        doctored(lambda wire: wire["data"][0].update(expiresAt="tomorrow")),
        doctored(lambda wire: wire["data"][0].update(expiresAt=1e300)),
        doctored(lambda wire: wire["data"][0].update(expiresAt=-1)),
        doctored(lambda wire: wire["data"].__setitem__(0, "yes")),
    ],
)
def test_invalid_response_denies_access(near: Caller, make_provider: MakeProvider, answer: Answerer) -> None:
    provider = make_provider(answer)
    use(near, provider.url)

    permissions = ask(near, userIds=["ada"], documentIds=["handbook"])["ada"]

    assert brief(permissions) == {"acme": "something_went_wrong", "handbook": "something_went_wrong"}
    assert len(provider.asked) == 3


def test_failed_call_is_retried_after_a_pause(make_world: WorldMaker, make_provider: MakeProvider) -> None:
    world = make_world(allow_private_urls=True, provider_pause=2.0)
    tenant = setting(world.tenant())
    codes = iter([503, 500, 200])

    def answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, bytes]:
        return next(codes), allow(lambda _: {"hasAccess": True})(body, headers)[1]

    use(tenant, make_provider(answer).url)

    assert brief(ask(tenant, userIds=["ada"])["ada"]) == {"acme": "editor"}
    assert world.slept == [2.0, 2.0]


def test_no_calls_after_the_last_failure(near: Caller, make_provider: MakeProvider) -> None:
    provider = make_provider(broken(b"", 500))
    use(near, provider.url)
    documents = [f"d{number}" for number in range(30)]
    near("add_documents", organizationId="acme", documents=[{"documentId": document} for document in documents])

    answer = ask(near, userIds=[f"u{number}" for number in range(30)], documentIds=documents)

    assert [len(asked) for asked in provider.asked] == [500, 500, 500]
    assert {code for user in answer.values() for code in brief(user).values()} == {"something_went_wrong"}


def test_provider_without_url_or_listener_denies_access(near: Caller, make_provider: MakeProvider) -> None:
    near("update_permission_provider_config", usePermissionProvider=True)
    assert brief(ask(near, userIds=["ada"])["ada"]) == {"acme": "something_went_wrong"}

    provider = make_provider(broken(b""))
    provider.close()
    use(near, provider.url)
    assert brief(ask(near, userIds=["ada"])["ada"]) == {"acme": "something_went_wrong"}

    near("update_permission_provider_config", usePermissionProvider=False)
    assert brief(ask(near, userIds=["ada"])["ada"]) == {"acme": "editor"}


def test_slow_provider_times_out(make_world: WorldMaker, make_provider: MakeProvider) -> None:
    tenant = setting(make_world(allow_private_urls=True, provider_timeout=0.2, provider_tries=2).tenant())

    def answer(*_: object) -> tuple[int, bytes]:
        import time

        time.sleep(0.6)
        return 200, b""

    provider = make_provider(answer)
    use(tenant, provider.url)

    assert brief(ask(tenant, userIds=["ada"])["ada"]) == {"acme": "something_went_wrong"}
    assert len(provider.asked) == 2


def test_host_with_a_private_address_is_not_called(
    tenant: Caller, make_provider: MakeProvider, world: BackendWorld
) -> None:
    """The name is accepted in the configuration. Its addresses are checked when connecting."""
    provider = make_provider(allow(lambda _: {"hasAccess": True}))
    setting(tenant)
    use(tenant, "http://provider.example/")
    from app.backend.security.tables import PROVIDER_CONFIG

    with world.engine.begin() as connection:
        connection.execute(PROVIDER_CONFIG.update().values(url=provider.url))

    assert brief(ask(tenant, userIds=["ada"])["ada"]) == {"acme": "something_went_wrong"}
    assert provider.asked == []


def test_limit_of_questions(tenant: Caller) -> None:
    setting(tenant)
    many = [f"n{number}" for number in range(999)]
    assert len(ask(tenant, userIds=["ada", *many])) == 1000
    assert len(ask(tenant, userIds=["ada", "ada"], documentIds=["roadmap", *many])["ada"]["documents"]) == 1000
    assert len(ask(tenant, userIds=many[:200], documentIds=many[:9])) == 200

    refused = tenant.refused(
        "get_permissions", organizationId="acme", userIds=many[:300], folderIds=many[:1], documentIds=many[:9]
    )
    assert refused[:2] == (400, "INVALID_ARGUMENT")
    assert refused[2].startswith("data: must ask at most 3000 questions, not 3300")
