"""Makes the README's picture of the console, `config/pictures/explain.png`, from the demo: `make pictures`.

It runs ``usher demo``, signs in with the demo's admin token and takes a picture of the page Explain in a real browser.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import requests
from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parents[1] / "config" / "pictures"
PORT = 18730
URL = f"http://127.0.0.1:{PORT}"
QUESTION = {"organization": "northwind", "user": "farah", "type": "document", "resource": "project-aurora"}


def wait_until_ready() -> None:
    """Returns when the service has read the directory; raises ``TimeoutError`` after two minutes."""
    for _ in range(240):
        try:
            if requests.get(f"{URL}/readyz", timeout=5).ok:
                return
        except requests.RequestException:
            pass
        time.sleep(0.5)
    raise TimeoutError("the demo did not start")


def take(folder: Path) -> None:
    """Signs in and takes the picture."""
    token = (folder / "admin-token").read_text(encoding="utf-8").strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell"),
            args=["--no-sandbox", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1180, "height": 636})
        page.goto(f"{URL}/console/")
        page.get_by_label("token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        page.goto(f"{URL}/console/explain?{urlencode(QUESTION)}")
        page.screenshot(path=PICTURES / "explain.png")
        browser.close()


def main() -> None:
    """Runs the demo and takes the picture."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        usher = str(Path(sys.executable).with_name("usher"))
        command = [usher, "demo", "--port", str(PORT), "--data", folder]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as demo:
            try:
                wait_until_ready()
                take(Path(folder))
            finally:
                demo.terminate()
                demo.wait(timeout=60)


if __name__ == "__main__":
    main()
