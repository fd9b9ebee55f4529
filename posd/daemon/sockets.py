"""The listening sockets: their lock, their group and mode, and those that systemd passes."""

import grp
import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path

from posd.base import locks

#: The first descriptor that the service manager passes (SD_LISTEN_FDS_START).
FIRST_DESCRIPTOR = 3
#: Owner and group alone may connect.
SOCKET_MODE = 0o660


class SocketError(Exception):
    """A socket cannot be had; the message says why and what to do."""


class NoGroup(SocketError):
    """The group of a socket does not exist."""


def descriptors(wanted: int) -> int:
    """Return how many file descriptors this process may open, after raising that to as many as wanted, where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < min(wanted, hard):
        with suppress(OSError, ValueError):  # the unit's filter of system calls forbids it; the unit sets it itself
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def lock_directory(directory: Path) -> int:
    """Take the lock of the socket directory, held for as long as the daemon lives; return its file descriptor.

    Raise SocketError where another daemon has it.
    """
    path = directory / "posd.lock"
    try:
        if not directory.exists():
            directory.mkdir(parents=True)
            directory.chmod(0o755)  # tills pass through it to their socket, with any umask
        return locks.take(path)
    except locks.Held:
        raise SocketError(
            f"another posd is serving {directory} ({path} is locked); stop it first, or give this one its own "
            "local_api.directory"
        ) from None
    except OSError as error:
        raise SocketError(
            f"cannot use {directory} for the sockets ({error.strerror}); create it, writable for posd, "
            "or set local_api.directory"
        ) from error


class Inherited:
    """The listening sockets that the service manager has made and passed on (sd_listen_fds(3)), by path.

    They outlive the daemon: while it is started again, tills wait in their queues.
    """

    def __init__(self) -> None:
        """Take them; no child of this process gets them."""
        count = os.environ.pop("LISTEN_FDS", "")
        for_us = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
        os.environ.pop("LISTEN_FDNAMES", None)
        descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)) if for_us and count.isdecimal() else ()
        self._sockets: dict[str, socket.socket] = {}
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            passed = socket.socket(fileno=descriptor)
            self._sockets[os.path.realpath(str(passed.getsockname()))] = passed

    def take(self, path: Path) -> socket.socket | None:
        """Return the socket of that path, None where it was not passed."""
        return self._sockets.pop(os.path.realpath(path), None)

    def close(self) -> None:
        """Raise SocketError where one was passed and not taken: a client that calls there would wait for ever."""
        if self._sockets:
            names = ", ".join(self._sockets)
            for passed in self._sockets.values():
                passed.close()
            raise SocketError(
                f"the service manager passes the socket {names}, which is not one of posd's; make ListenStream= in "
                "posd.socket and local_api.directory in the configuration agree"
            )


def unix_socket(path: Path, group: str) -> socket.socket:
    """Bind a Unix socket, mode 0660, for a group ("" for the daemon's own). The caller holds the directory's lock.

    Raise SocketError, NoGroup.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        gid = grp.getgrnam(group).gr_gid if group else -1
    except KeyError:
        sock.close()
        raise NoGroup(
            f"the group {group} for {path} does not exist; create it (systemd-sysusers, or groupadd {group}), "
            'or set the group in [local_api] to "" for the group of posd itself'
        ) from None
    before = os.umask(0o177)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()  # left by a daemon that was killed: the lock says that none lives
        sock.bind(str(path))
        os.chown(path, -1, gid)
        path.chmod(SOCKET_MODE)
    except OSError as error:
        sock.close()
        raise SocketError(
            f"cannot make the socket {path} ({error.strerror}); posd must own the directory and belong to the group "
            f"{group or 'that it runs as'}"
        ) from error
    finally:
        os.umask(before)
    return sock


def tcp_socket(host: str, port: int, key: str) -> socket.socket:
    """Bind the socket of a listener, of which `key` is where the configuration says so. Raise SocketError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise SocketError(
            f"cannot listen on {host}:{port} ({error.strerror}); if another program has the port, stop it or choose "
            f"another one in {key}"
        ) from error
    return sock
