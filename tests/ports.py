"""Free ports of the loopback address."""

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """A port without a listener. The next one has no listener, either."""
    while True:
        with socket.create_server((HOST, 0)) as listener:
            port: int = listener.getsockname()[1]
            try:
                with socket.create_server((HOST, port + 1)):
                    return port
            except (OSError, OverflowError):
                continue
