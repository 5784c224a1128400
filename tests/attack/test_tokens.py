"""Rotation of tokens under load, and throttling of guesses without lockouts."""

import signal
import threading
import time
from pathlib import Path

import pytest
import requests

from app.contract.operations import by_name
from tests.attack.conftest import BODY, Target, write_service
from tests.attack.fuzzing import backend
from tests.choice import sampled
from tests.e2e.conftest import Usher, serving, wait_for
from tests.ports import HOST, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.xdist_group("attack")]

OLD, NEW = "the-token-of-old", "the-token-of-now"


def ask(url: str, token: str, **further: str) -> requests.Response:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}", **further}
    return requests.post(f"{url}/permissions/check", data=BODY, headers=headers, timeout=10)


@pytest.mark.external
def test_guessing_is_throttled_without_lockouts(service: Target) -> None:
    # The client's own X-Forwarded-For does not count.
    codes = [
        ask(service.url, f"guess-{number}", **{"X-Forwarded-For": f"192.0.2.{number}"}).status_code
        for number in range(40)
    ]
    assert codes == [401] * 20 + [429] * 20
    refused = requests.get(f"{service.url}/resync/x", headers={"Authorization": "Bearer guess"}, timeout=5)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    service.ask()


@pytest.mark.parametrize("options", sampled([["--with-worker"], []], sample=1), ids=["with a worker", "alone"])
def test_tokens_are_exchanged_while_calls_go_on(tmp_path: Path, options: list[str]) -> None:
    port = free_port()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{OLD}\n")
    config = write_service(
        tmp_path,
        port,
        provider={"auth_tokens_file": str(tokens)},
        backend={"base_url": f"http://{HOST}:1", "api_key": "k", "auth_token": "t"},
        sync={"schedule": "", "verify_schedule": ""},
    )
    assert Usher(tmp_path, "directory", "refresh", "--config", config, forked=True).process.wait(60) == 0
    usher = Usher(tmp_path, "serve", *options, "--config", config, forked=True)
    url = f"http://{HOST}:{port}"
    in_use, answered, failed, done = [OLD], [0], [], threading.Event()

    def call() -> None:
        with requests.Session() as session:
            while not done.is_set():
                headers = {"Content-Type": "application/json", "Authorization": f"Bearer {in_use[0]}"}
                try:
                    code = session.post(f"{url}/permissions/check", data=BODY, headers=headers, timeout=10).status_code
                except requests.RequestException as error:
                    failed.append(repr(error))
                    continue
                answered[0] += 1
                if code != 200:
                    failed.append(f"{code} with {headers['Authorization']}")

    callers = [threading.Thread(target=call) for _ in range(2)]
    try:
        serving(usher, url)
        for caller in callers:
            caller.start()
        for values, accepted, refused in ((f"{OLD}\n{NEW}\n", NEW, "never"), (f"{NEW}\n", NEW, OLD)):
            tokens.write_text(values)
            usher.process.send_signal(signal.SIGHUP)

            def exchanged(accepted: str = accepted, refused: str = refused) -> bool:
                return ask(url, accepted).status_code == 200 and ask(url, refused).status_code in {401, 429}

            wait_for("the exchange", exchanged, 20)
            in_use[0] = NEW
            time.sleep(1)
        tokens.unlink()
        usher.process.send_signal(signal.SIGHUP)
        wait_for("the complaint", lambda: "cannot be reloaded" in usher.stderr(), 10)
        time.sleep(1)
        assert ask(url, NEW).status_code == 200
    finally:
        done.set()
        for caller in callers:
            caller.join()
        code = usher.end()
    assert failed == []
    assert answered[0] > 50
    assert code == 0
    output = usher.stderr()
    assert "Traceback" not in output


def test_guessing_at_the_backend_is_throttled_without_lockouts(tmp_path: Path) -> None:
    target = backend(tmp_path)
    client, path = target.app.test_client(), by_name("get_organizations").path
    wrong = {**target.credentials, "x-service-auth-token": "guess"}

    def code(headers: dict[str, str], address: str = "192.0.2.1") -> int:
        answer = client.post(path, json={"data": {}}, headers=headers, environ_base={"REMOTE_ADDR": address})
        return answer.status_code

    assert [code(wrong) for _ in range(30)] == [403] * 20 + [429] * 10
    assert code(wrong, "192.0.2.2") == 403
    assert code(target.credentials) == 200
