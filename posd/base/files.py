"""Files: creation with private access, atomic replacement, sync and locks.

An account other than root can write to the daemon's state folder. So any name in it can be a link to a file of root.
"""

import ctypes
import errno
import fcntl
import os
import pwd
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Errors of file systems that cannot sync a folder: some network shares and user-space file systems.
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
#: Number of bytes that `rewrite_and_fsync` rewrites at a time.
CHUNK_BYTES = 1 << 18
#: Fields of struct flock (fcntl(2)): type, whence, start, length, process. SQLite's own locks are near byte 2^30.
_OF_INODE = ("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 1 << 40, 1, 0)


@contextmanager
def acting_as_owner(file: Path) -> Iterator[None]:
    """Act as the owner of a file's folder during the block, if this process is root. Raise OSError."""
    if os.getuid() != 0:
        yield
        return
    before = os.geteuid(), os.getegid(), os.getgroups()
    os.seteuid(0)  # root again, if a block for the owner of another folder is active
    try:
        if (owner := _owner(file)) is not None:
            os.setgroups(owner[2])
            os.setegid(owner[1])
            os.seteuid(owner[0])
            _check_python()
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[1])
        os.setgroups(before[2])
        os.seteuid(before[0])


def give_up_root(file: Path) -> None:
    """Change to the owner of a file's folder permanently, if this process is root. Raise OSError."""
    if os.getuid() == 0 and (owner := _owner(file)) is not None:
        uid, gid, groups = owner
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        _check_python()


def _check_python() -> None:
    """Raise PermissionError if the present user cannot import further modules."""
    for what, file in (("the Python that runs posd", os.__file__), ("posd's own files", __file__)):
        if not os.access(file, os.R_OK, effective_ids=True):
            words = f"user {os.geteuid()}, the owner of the folder, may not read {what} ({Path(file).parent})"
            raise PermissionError(errno.EACCES, f"{words}; install posd where all users may read it")


def _owner(file: Path) -> tuple[int, int, list[int]] | None:
    """Return user id, group id and groups of the owner of a file's folder, or None for root.

    If root owns the folder and the file is a link, use the folder of the link's target. If the folder is missing, use
    its nearest existing parent.
    """
    for folder in (file.absolute().parent, Path(os.path.realpath(file)).parent):
        found = next(each for each in (folder, *folder.parents) if each.exists()).stat()
        if found.st_uid != 0:
            try:
                user = pwd.getpwuid(found.st_uid)
            except KeyError:
                return found.st_uid, found.st_gid, [found.st_gid]
            return user.pw_uid, user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid)
    return None


def login_name(uid: int) -> str | None:
    """Return the login name of a user id, or None."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def user_name(uid: int) -> str:
    """Return the login name of a user id, or the number if there is no name, as in a container."""
    return login_name(uid) or str(uid)


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600. Raise FileExistsError, or another OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def replace(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically, even if the power fails. Raise OSError."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        create_private(fresh)
        fresh.write_bytes(content)
        fresh.chmod(mode)
        sync(fresh)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Wait until a file is on disk. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> bool:
    """Wait until the names in a folder are on disk.

    Return False if its file system cannot sync a folder. Raise OSError.
    """
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
        return False
    return True


def reserve(descriptor: int, size: int) -> bool:
    """Reserve disk blocks for a file up to a size, without changing its content. Return whether that succeeded.

    Writes within the reserved blocks succeed on a full disk (fallocate(2), FALLOC_FL_KEEP_SIZE).
    """
    try:
        failed: int = ctypes.CDLL(None).fallocate(descriptor, 1, ctypes.c_long(0), ctypes.c_long(size))
    except AttributeError:
        return False
    return not failed


def rewrite_and_fsync(path: Path) -> int:
    """Rewrite a file's bytes in place and wait until they are on disk. Return their number. Raise OSError.

    After a failed sync the kernel counts the data as synced. So another sync may report success, although the data is
    not on disk. The kernel does not count rewritten data as synced, so this sync is reliable.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        done = 0
        while content := os.pread(descriptor, CHUNK_BYTES, done):  # pread does not move the position of the next write
            done += os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return done


def lock(path: Path) -> int:
    """Lock a file, and create it if it is missing. Return its descriptor. The lock ends when the descriptor is closed.

    Raise OSError: BlockingIOError if another process holds the lock.
    """
    return _locked(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), whole=True)


def lock_inode(path: Path) -> int:
    """Lock a database file by its inode, so also for other paths to it. Return the descriptor of the lock.

    The lock belongs to this descriptor, and covers a byte that SQLite does not lock. So it never conflicts with
    SQLite's locks, even on a network file system. Close the descriptor only after SQLite has closed the file, because
    closing the descriptor ends SQLite's locks. Raise OSError: BlockingIOError if another process holds the lock.
    """
    return _locked(os.open(path, os.O_RDWR | os.O_CLOEXEC), whole=False)


def _locked(descriptor: int, *, whole: bool) -> int:
    try:
        if whole:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(*_OF_INODE))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
