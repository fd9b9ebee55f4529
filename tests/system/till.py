"""A till for the machine (`python3 till.py`). The till needs only the system's Python, without posd.

The till pays and requests the version in a loop, each time on a new connection. SIGTERM ends the loop. At its end the
till prints its counts as JSON. After a broken connection the till repeats the call under the same id, as tills do. The
till counts refused and broken connections.
"""

import http.client
import json
import signal
import socket
import threading
import time
import uuid

SOCKET = "/run/posd/till.sock"
told = threading.Event()
counts = {"refused": 0, "broken": 0}
words: set[str] = set()


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(150)
        try:
            self.sock.connect(SOCKET)
        except OSError as error:
            counts["refused"] += 1
            words.add(f"refused: {error}")
            raise


def call(method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    """Repeat a call until there is a response."""
    while True:
        connection = Connection("posd")
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/v1{path}", content, {"content-type": "application/json"} if content else {})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 503:
                return response.status, answer
            words.add(f"503 {answer.get('code')}")
        except (OSError, http.client.HTTPException) as error:
            if not isinstance(error, ConnectionRefusedError | FileNotFoundError):
                counts["broken"] += 1
                words.add(f"broken: {type(error).__name__} {error}")
        finally:
            connection.close()
        time.sleep(0.05)


def ask() -> None:
    while not told.is_set():
        call("GET", "/version")
        told.wait(0.01)


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    asking = threading.Thread(target=ask)
    asking.start()
    outcomes: dict[str, str] = {}
    while not told.is_set():
        path = f"/transactions/{uuid.uuid4()}"
        status, answer = call("PUT", path, {"amount": {"subtotal_iva0": 1}})
        if status >= 300:
            words.add(f"{status} {answer.get('code')}")
            continue
        status = 202
        while status != 200:
            status, answer = call("GET", f"{path}/outcome?timeout=5")
            if told.is_set() and answer.get("phase") == "in_doubt":
                break  # posd cannot know the result, so the till does not wait for the person who resolves the payment
        result = str(answer.get("result", "in doubt"))
        outcomes[result] = outcomes.get(result, 0) + 1
    asking.join()
    print(json.dumps({**counts, "words": sorted(words), "outcomes": outcomes}))


main()
