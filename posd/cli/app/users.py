"""Names of users. A user id need not have one, as in a container: there the number stands for it."""

import os
import pwd


def login_name(uid: int) -> str | None:
    """Return the login name of a user id; None where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def user_name(uid: int) -> str:
    """Return the login name of a user id; the number where it has none."""
    return login_name(uid) or str(uid)


def caller() -> str:
    """Return who calls: the user behind sudo, else the one of this process."""
    return os.environ.get("SUDO_USER") or user_name(os.getuid())
