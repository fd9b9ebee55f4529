"""sd_notify: a datagram to the service manager, and nothing where there is none."""

import os
import socket


def notify(**state: str) -> None:
    """Tell the service manager, as in `notify(READY="1", STATUS="listening")`."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    text = "\n".join(f"{name}={value}" for name, value in state.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(text.encode(), address)
        except OSError:
            return  # the manager went away; the daemon works on
