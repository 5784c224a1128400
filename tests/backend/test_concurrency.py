from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from .conftest import BackendWorld, Caller

THREADS = 4


def at_once(world: BackendWorld, caller: Caller, name: str, requests: list[dict[str, Any]]) -> list[Any]:
    """Sends the requests at the same time, each in its own thread to its own node."""
    barrier = Barrier(len(requests))
    # One after the other: routes are compiled, which Python 3.11 cannot do in two threads at once.
    nodes = [Caller(world.another_node(), caller.headers) for _ in requests]

    def run(node: Caller, data: dict[str, Any]) -> Any:
        barrier.wait()
        return node.call(name, **data)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(run, nodes, requests))


def test_concurrent_adds_of_the_same_users(world: BackendWorld) -> None:
    tenant = world.tenant()
    ids = [f"u{number}" for number in range(50)]
    # In different orders, which is what deadlocks are made of.
    orders = [ids, ids[::-1], ids[25:] + ids[:25], ids[::2] + ids[1::2]]

    responses = at_once(
        world,
        tenant,
        "add_users",
        [{"organizationId": "acme", "users": [{"userId": i} for i in order]} for order in orders],
    )

    assert {response.status_code for response in responses} == {200}
    for user_id in ids:
        wins = [response.json["result"]["data"][user_id]["success"] for response in responses]
        assert wins.count(True) == 1
    assert len(tenant("get_users", organizationId="acme")) == 50


def test_concurrent_updates_of_one_user(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("add_users", organizationId="acme", users=[{"userId": "ada"}])

    for _ in range(5):
        responses = at_once(
            world,
            tenant,
            "update_users",
            [{"organizationId": "acme", "users": [{"userId": "ada", f"field{n}": n}]} for n in range(THREADS)],
        )
        assert {response.status_code for response in responses} == {200}

    (ada,) = tenant("get_users", organizationId="acme")
    assert {ada[f"field{n}"] for n in range(THREADS)} == set(range(THREADS))


def test_concurrent_moves_cannot_create_a_cycle(world: BackendWorld) -> None:
    tenant = world.tenant()
    for number in range(5):
        a, b = f"a{number}", f"b{number}"
        folders = [{"folderId": a}, {"folderId": b}]
        tenant("add_folder", organizationId="acme", folders=folders, createOrganization=True)
        responses = at_once(
            world,
            tenant,
            "update_folder",
            [
                {"organizationId": "acme", "folders": [{"folderId": a, "parentFolderId": b}]},
                {"organizationId": "acme", "folders": [{"folderId": b, "parentFolderId": a}]},
            ],
        )
        wins = [next(iter(response.json["result"]["data"].values()))["success"] for response in responses]
        assert sorted(wins) == [False, True]


def test_concurrent_first_workspaces_of_one_email(world: BackendWorld) -> None:
    codes = [
        response.status_code
        for response in at_once(
            world, world.anonymous, "create_workspace", [{"ownerEmail": "ada@acme.example"} for _ in range(THREADS)]
        )
    ]

    # A concurrent request gets ALREADY_EXISTS. A later one needs a production key.
    assert codes.count(200) == 1
    assert set(codes) <= {200, 409, 403}


def test_limit_by_address_across_nodes(make_world: Any) -> None:
    world = make_world(workspaces_per_hour=2)

    codes = [
        response.status_code
        for response in at_once(
            world,
            world.anonymous,
            "create_workspace",
            [{"ownerEmail": f"a{number}@acme.example"} for number in range(THREADS)],
        )
    ]

    assert sorted(codes) == [200, 200, 429, 429]
