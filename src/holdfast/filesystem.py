"""Durable files and folders on a local disk, where SQLite's locks and shared memory work.

A synced file survives a power loss only if the folders above it have its name on disk too. On a network file system, or
on a folder that a virtual machine shares with its host (WSL's 9p among them), two machines can write one file without
seeing each other's locks, and the store breaks. Such file systems are refused before anything is created; what cannot
be determined (an unknown platform, an unreadable mount table, an unknown type) is accepted.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from holdfast.errors import Corrupt, ReadOnly, Unsupported

Signature = tuple[int, int, int]


LOG_URL = "log.url"  # in a folder that is a replica: the address of its log, without secrets


MOVE = "move.json"  # in a folder on its way to a log or from one: see replication.moves


def is_moving(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is on its way to a log or from one, and the process that moved it may have ended."""
    return os.path.exists(os.path.join(folder, MOVE))


def recorded_log(folder: str | os.PathLike[str]) -> str | None:
    """Return the address of the log that a folder is a replica of; None if it records none."""
    try:
        with open(os.path.join(folder, LOG_URL), encoding="utf-8") as file:
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:  # not to be taken for a folder that is no replica
        hint = "write the address of the log into it, or restore it from a copy"
        raise Corrupt(f"{LOG_URL} in {os.fspath(folder)} cannot be read: {error}", hint=hint) from error
    except ValueError:  # no path at all, which opening it says
        return None


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder with its parents, mode 0700 whatever the umask; all are durable when this returns."""
    path = os.path.abspath(path)
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.makedirs(folder, mode=0o700, exist_ok=True)  # another process may be making it too
        if os.stat(folder).st_mode & 0o777 != 0o700:
            os.chmod(folder, 0o700)
        sync(os.path.dirname(folder))


def sync(path: str | os.PathLike[str]) -> None:
    """Flush a file's content, or a folder's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """Replace a file at once by one that only its owner can read, or with another `mode`."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def check_writable(folder: str) -> None:
    """Raise ReadOnly if no file can be made in a folder from here."""
    if not os.access(folder, os.W_OK):
        mounted = os.statvfs(folder).f_flag & os.ST_RDONLY
        why = "it is mounted read-only" if mounted else "this user may not write to it"
        raise ReadOnly(f"{folder} cannot be written from here: {why}")


def signature_of(path: str | os.PathLike[str]) -> Signature | None:
    """What differs once a file has changed; None if it does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def hide_from_git(folder: str) -> None:
    """Make git ignore a new, empty folder; never one that holds other files."""
    if not os.listdir(folder):
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")


# Without the prefix "fuse.": fuse.sshfs is as remote as sshfs.
_NETWORK: Final = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "ncpfs", "afs", "auristorfs", "coda"}
    | {"webdav", "davfs", "davfs2", "ftp", "sshfs", "curlftpfs", "gvfsd-fuse"}
    | {"s3fs", "goofys", "geesefs", "gcsfuse", "blobfuse", "blobfuse2", "mountpoint-s3", "rclone", "juicefs"}
    | {"ceph", "ceph-fuse", "glusterfs", "lustre", "beegfs", "gpfs", "pvfs2", "orangefs", "panfs", "quobyte"}
    | {"moosefs", "lizardfs", "seaweedfs", "fuse_dfs", "ocfs2", "gfs", "gfs2", "acfs"}
)
# Folders of the host seen from inside a virtual machine: WSL's Windows drives, Docker Desktop's bind mounts and others.
_HOST: Final = frozenset({"9p", "drvfs", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "vmhgfs-fuse", "grpcfuse", "osxfs"})

_HINT: Final = "put the workspace on a local disk of the machine whose processes share it"


def check_place(folder: str | os.PathLike[str]) -> None:
    """Raise Unsupported if `folder`, which need not exist yet, is on a file system that cannot hold a store."""
    try:
        found = _mount_of(os.path.realpath(folder), sys.platform)
    except (OSError, RuntimeError, ValueError):  # opening the folder reports what is wrong with it
        return
    if found is None or not refusal(found[1]):
        return
    mount, fs_type = found
    message = f"{os.fspath(folder)} is on {mount}, a file system of type {fs_type}, where file locks do not work"
    raise Unsupported(message, hint=_HINT, mount=mount, fs_type=fs_type)


def refusal(fs_type: str) -> bool:
    """Whether a file system of this type, as the system names it, is refused."""
    name = fs_type.lower().removeprefix("fuse.")
    return name in _NETWORK or name in _HOST


def _mount_of(path: str, platform: str) -> tuple[str, str] | None:
    if platform == "linux":
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return filesystem_of(path, table.read())
    if platform == "darwin":
        return _statfs(path)
    return None


def filesystem_of(path: str | os.PathLike[str], mountinfo_text: str) -> tuple[str, str] | None:
    """Return mount point and type of the file system of an absolute path, from a Linux mountinfo table."""
    wanted = os.fspath(path).rstrip("/") + "/"
    best: tuple[str, str] | None = None
    for line in mountinfo_text.split("\n"):
        mount = _parse(line)
        if mount is None or not wanted.startswith(mount[0].rstrip("/") + "/"):
            continue
        # Of several mounts on one point the last one covers the others, hence not just ">".
        if best is None or len(mount[0]) >= len(best[0]):
            best = mount
    return best


def _parse(line: str) -> tuple[str, str] | None:
    # 36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw: any number of fields before the lone hyphen
    before, hyphen, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not hyphen or len(left) < 6:
        return None
    return _unescape(left[4]), _unescape(right[0])


def _unescape(field: str) -> str:
    # The kernel writes blanks, newlines and backslashes as three octal digits.
    if "\\" not in field:
        return field
    import re  # few mount points have such a name

    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _statfs(path: str) -> tuple[str, str] | None:
    import ctypes  # here, since only macOS needs it

    libc = ctypes.CDLL(None, use_errno=True)
    # On Intel the plain symbol fills the older, smaller struct; on ARM there is only the new one.
    call = getattr(libc, "statfs$INODE64", None) or libc.statfs
    buffer = ctypes.create_string_buffer(4096)  # the struct takes 2168 bytes
    while call(os.fsencode(path), buffer) != 0:  # the folder may not exist yet
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return _parse_statfs(buffer.raw)


def _parse_statfs(raw: bytes) -> tuple[str, str]:
    # struct statfs with 64-bit inodes: char f_fstypename[16] at 72, char f_mntonname[1024] at 88
    fs_type, mount = raw[72:88], raw[88 : 88 + 1024]
    return os.fsdecode(mount.split(b"\0")[0]), os.fsdecode(fs_type.split(b"\0")[0])
