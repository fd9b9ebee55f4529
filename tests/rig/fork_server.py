"""`python -m tests.rig.fork_server KIND DESCRIPTOR` imports posd, and then forks a process for each request.

A start of posd takes half a second of processor time. Imports take nearly all of this time, and the tests start posd
some thousand times. A fork takes a hundredth of the time. The result is an ordinary process with its own pid,
descriptors, environment and memory. A test can kill the process at any instant.

`tests.rig.forks` is the other end. Each message over a socket requests one start. A message contains JSON, and the
descriptors of the standard streams and of a status socket. The server sends the pid and then the exit status over the
status socket. When all other ends are closed, the server kills the processes that it has started, and ends.
"""

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import termios
import threading
import time
from contextlib import suppress
from typing import Any

#: Format of the pid and of the exit status. A status below 0 is a signal, as in `subprocess`.
NUMBER = struct.Struct("=i")
#: Longest request with command line and environment, in bytes.
MAX_REQUEST_BYTES = 262_144
#: Number of descriptors in a request: stdin, stdout, stderr and the status socket.
DESCRIPTORS = 4

_RUN = """
posd.cli.entry posd.cli.run posd.config posd.logs.output posd.daemon.main
concurrent.futures.thread encodings.ascii encodings.utf_8_sig importlib.metadata
"""
_COMMAND = """
posd.cli.entry posd.cli.main posd.cli.simulate posd.cli.demo posd.cli.doctor.command posd.cli.explain.command
posd.cli.operate.config posd.cli.operate.database posd.cli.operate.files posd.cli.operate.status
posd.cli.payments.decide posd.cli.payments.show posd.cli.payments.start posd.cli.terminals.command posd.cli.tls
posd.client posd.simulator httpcore2 rich.progress rich.table
"""
#: Kind of server -> imports. `posd run` omits some imports (see `posd.cli.run`). The list has modules that a process
#: imports at their first use.
IMPORTS = {
    "run": _RUN.split(),
    "command": _COMMAND.split(),
    "office": ["posd.cli.entry", "posd.cli.main", "posd.cli.collect", "posd.collect.collector", "posd.relay.relay"],
    "till": ["posd.client", "httpx2", "httpcore2", "asyncio"],
}


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Return the request in the forked process. Return None in the server at its end."""
    wake, woken = socket.socketpair()
    for end in (control, wake, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno())
    living: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    while True:
        selector.select()
        _reap(wake, living)
        try:
            message, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, DESCRIPTORS)
        except BlockingIOError:
            continue
        if not message:
            for pid in living:
                os.kill(pid, signal.SIGKILL)
            return None
        *streams, status = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            selector.close()
            for opened in (*living.values(), control, wake, woken):
                opened.close()
            for descriptor in descriptors:
                os.close(descriptor)
            return dict(json.loads(message))
        living[pid] = socket.socket(fileno=status)
        living[pid].send(NUMBER.pack(pid))
        for stream in streams:
            os.close(stream)


def _reap(wake: socket.socket, living: dict[int, socket.socket]) -> None:
    with suppress(BlockingIOError):
        wake.recv(4096)
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            pid, status = ended
            with living.pop(pid) as told, suppress(BrokenPipeError):
                told.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def become(request: dict[str, Any]) -> None:
    """Run the request in this process: `python -m MODULE ARGUMENT…`, or `python FILE ARGUMENT…`."""
    if request["session"]:
        os.setsid()
        if os.isatty(0):  # keys such as Ctrl-Z reach only the session of the terminal
            fcntl.ioctl(0, termios.TIOCSCTTY)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - the standard streams stay open
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding=encoding, write_through=True)
    else:
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    if request["closed"]:
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # `python` without a stdout does the same
    # this module reads the environment at its import
    importlib.reload(importlib.import_module("posd.base.crashpoints"))
    program = request["program"]
    sys.argv = [program, *request["arguments"]]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def end(code: int) -> None:
    """End the process as an interpreter does, except that no object is freed. The freeing would copy all memory that
    the process shares with the server.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # reports tasks and coroutines that nothing awaited
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    kind, descriptor = sys.argv[1:]
    if kind == "run":
        from posd.cli.run import UNUSED

        for name in UNUSED:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    for name in IMPORTS[kind]:
        importlib.import_module(name)
    if change := os.environ.get("TESTS_CHANGE"):
        importlib.import_module("tests.mutants.change").make_written(change)
    gc.collect()
    gc.freeze()
    asked = serve(socket.socket(fileno=int(descriptor)))
    if asked is not None:
        try:
            become(asked)
        except SystemExit as ended:
            if ended.code is not None and not isinstance(ended.code, int):
                raise
            code = ended.code or 0
        else:
            code = 0
        with suppress(OSError):  # the interpreter reports lost output
            end(code)
        sys.exit(code)
