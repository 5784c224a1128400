"""Concurrent requests about the same thread and the same notification."""

from concurrent.futures import ThreadPoolExecutor

from .conftest import BackendWorld

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}
CALLS = 12


def test_concurrent_writes_are_all_kept(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}], createOrganization=True)
    begun = [{"annotationId": "t", "commentData": [{"commentText": "x", "from": {"userId": "ada"}}]}]
    tenant("add_comment_annotations", **DOC, commentAnnotations=begun)
    tenant("add_notifications", **DOC, notificationId="n", actionUser={"userId": "ada"})

    def comment(number: int) -> None:
        user = {"userId": f"u{number}"}
        tenant("add_comments", **DOC, annotationId="t", commentData=[{"commentText": "y", "from": user}])
        read = {"id": "n", "readByUserIds": [f"u{number}", "everybody"]}
        tenant("update_notifications", **ORG, notifications=[read])

    with ThreadPoolExecutor(CALLS) as pool:
        list(pool.map(comment, range(CALLS)))

    comments = tenant("get_comments", **DOC, annotationId="t")
    assert {item["from"]["userId"] for item in comments} == {"ada", *(f"u{number}" for number in range(CALLS))}
    (shown,) = [item for item in tenant("get_notifications", **ORG) if item["id"] == "n"]
    assert sorted(shown["readByUserIds"]) == sorted(["everybody", *(f"u{number}" for number in range(CALLS))])
    with world.engine.connect() as connection:
        stored = connection.exec_driver_sql("SELECT readers FROM notification WHERE notification_id = 'n'").scalar_one()
    assert stored == CALLS + 1
    # The last comment notifies all earlier participants.
    counts = [len(tenant("get_notifications", **ORG, userId=f"u{number}")) - 1 for number in range(CALLS)]
    assert sorted(counts) == list(range(CALLS))
