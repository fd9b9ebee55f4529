"""A till that stores its payments in a folder. With ID the till charges under this id. Without ID the till settles the
open payments. With LINE the till dies before the LINE-th line of the client's code. Arguments: SOCKET FOLDER TERMINAL
[ID LINE].
"""

import os
import signal
import sys
from types import FrameType
from typing import Any

from posd.client import PaymentStore, Posd

#: Files that decide when a payment is stored and sent. Other files only read and write documents.
FILES = ("/posd/client/store.py", "/posd/client/calls.py", "/posd/client/plans.py", "/posd/client/connection.py")

left = 0


def kill_at_the_line(frame: FrameType, event: str, _: Any) -> Any:
    global left
    if not frame.f_code.co_filename.endswith(FILES):
        return None
    if event == "line":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return kill_at_the_line


def main(socket: str, folder: str, terminal: str, identity: str = "", line: str = "0") -> None:
    global left
    left = int(line)
    if left:
        sys.settrace(kill_at_the_line)
    store = PaymentStore(folder)
    with Posd(socket, store=store.save) as posd:
        if identity:
            posd.charge(identity, "5.00", terminal=terminal)
            return
        for stored in store.open_payments():
            payment = posd.start(stored)
            print(stored.id, stored.request["amount"]["subtotal_iva0"], flush=True)
            print(payment.outcome().paid.value, flush=True)
            store.remove(stored.id)


main(*sys.argv[1:])
