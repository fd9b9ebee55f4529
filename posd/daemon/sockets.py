"""Listening sockets: lock, group and mode, and sockets that systemd passes."""

import errno
import grp
import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path

from posd.base import files

#: First descriptor that the service manager passes (SD_LISTEN_FDS_START).
FIRST_DESCRIPTOR = 3
#: Mode of a socket: only its owner and its group may connect.
SOCKET_MODE = 0o660


class SocketError(Exception):
    """Error for a socket that cannot be used. The message has the reason and what to do."""


class NoGroup(SocketError):
    """Error for a socket's group that does not exist."""


def descriptors(wanted: int) -> int:
    """Raise the limit of file descriptors to `wanted` if allowed. Return the present limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < min(wanted, hard):
        # under systemd the unit forbids this system call: the unit sets the limit
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def lock_directory(directory: Path) -> int:
    """Lock the socket directory for the life of the daemon. Return the file descriptor.

    Raise SocketError if another daemon has the lock.
    """
    path = directory / "posd.lock"
    try:
        if not directory.exists():
            directory.mkdir(parents=True)
            directory.chmod(0o755)  # tills need this mode to reach their socket, independent of the umask
        return files.lock(path)
    except BlockingIOError:
        raise SocketError(
            f"another posd is serving {directory} ({path} is locked); stop it first, or give this one its own "
            "local_api.directory"
        ) from None
    except OSError as error:
        raise SocketError(
            f"cannot use {directory} for the sockets ({error.strerror}); create it, writable for posd, "
            "or set local_api.directory"
        ) from error


#: Listening sockets that the service manager passed (sd_listen_fds(3)), by path.
InheritedSockets = dict[str, socket.socket]


def inherited() -> InheritedSockets:
    """Adopt the passed sockets. No child process inherits them.

    Passed sockets stay open while the daemon restarts, so tills wait in their queues.
    """
    count = os.environ.pop("LISTEN_FDS", "")
    for_us = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    os.environ.pop("LISTEN_FDNAMES", None)
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)) if for_us and count.isdecimal() else ()
    found: InheritedSockets = {}
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
        passed = socket.socket(fileno=descriptor)
        found[os.path.realpath(str(passed.getsockname()))] = passed
    return found


def take(passed: InheritedSockets, path: Path, group: str) -> socket.socket | None:
    """Return the passed socket at a path, or None. Set its group if possible."""
    found = passed.pop(os.path.realpath(path), None)
    if found is not None:
        with suppress(OSError, NoGroup):
            _give(path, _gid(path, group))
    return found


def refuse_unused(left: InheritedSockets) -> None:
    """Raise SocketError if a passed socket is unused, because its clients would wait without end."""
    if left:
        names = ", ".join(left)
        for unused in left.values():
            unused.close()
        raise SocketError(
            f"the service manager passes the socket {names}, which is not in the configuration; correct "
            "ListenStream= in posd.socket, or local_api.directory in the configuration, so that they agree"
        )


def unix_socket(path: Path, group: str) -> socket.socket:
    """Bind a Unix socket, mode 0660, for a group ("" for the daemon's own). The caller holds the directory's lock.

    Raise SocketError, NoGroup.
    """
    gid = _gid(path, group)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if path.exists():
            if not stat.S_ISSOCK(path.stat().st_mode):
                raise FileExistsError(errno.EEXIST, "another file is there")
            path.unlink()  # a killed daemon left it; the lock shows that no daemon runs
        sock.bind(str(path))
        _give(path, gid)
    except OSError as error:
        sock.close()
        cure = f"posd must own the directory and belong to the group {group or 'that it runs as'}"
        if isinstance(error, FileExistsError):
            cure = "move it away, or remove it"
        raise SocketError(f"cannot make the socket {path} ({error.strerror}); {cure}") from error
    finally:
        os.umask(before)
    return sock


def _gid(path: Path, group: str) -> int:
    """Return the id of the group of a socket. Raise NoGroup."""
    try:
        return grp.getgrnam(group).gr_gid if group else os.getegid()
    except KeyError:
        raise NoGroup(
            f"the group {group} for {path} does not exist; create it (systemd-sysusers, or groupadd {group}), "
            'or set the group in [local_api] to "" for the group of posd itself'
        ) from None


def _give(path: Path, gid: int) -> None:
    """Set the group of a socket, and mode 0660. Raise OSError."""
    os.chown(path, -1, gid)
    path.chmod(SOCKET_MODE)


def tcp_socket(host: str, port: int, key: str) -> socket.socket:
    """Bind the TCP socket of a listener. `key`: key of the listener in the configuration. Raise SocketError."""
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
