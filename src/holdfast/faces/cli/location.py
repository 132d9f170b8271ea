"""Which workspace or server a command uses, and why.

In this order: --dir or --url, HOLDFAST_DIR, HOLDFAST_URL, and else a folder `.holdfast` found upwards from the current
one. All worktrees of a git repository share the one of its main worktree; this reads git's files and does not start
git.

Every command finds its workspace, also one that a server carries out, so this module loads no other to do so.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

    from holdfast.errors import HoldfastError, NotFound

FOLDER: Final = ".holdfast"
STORE: Final = "holdfast.db"
_PARTS: Final = (STORE, f"{STORE}-wal", f"{STORE}-shm")
_MARKS: Final = ("commit.mark", "open.lock")  # with content, what a store leaves whose files were removed
_LOG: Final = "log.url"  # of a replica, which comes back from its log
TRACES: Final = (STORE, *_MARKS, _LOG)  # without any of these a folder holds no workspace, nor what is left of one


class Place:
    """A workspace: a folder, or the address of a server. `chosen`: it was given explicitly; a write may create it."""

    __slots__ = ("chosen", "folder", "url", "why")

    def __init__(self, why: str, folder: str | None = None, url: str | None = None, chosen: bool = True) -> None:
        self.why = why
        self.folder = folder
        self.url = url
        self.chosen = chosen

    @property
    def exists(self) -> bool:
        """Whether the store exists; a server is assumed to."""
        return self.folder is None or os.path.exists(os.path.join(self.folder, STORE))

    @property
    def name(self) -> str:
        """The folder or the address."""
        return self.url if self.folder is None else self.folder  # type: ignore[return-value]  # one of them is there


def find(given: Mapping[str, Any], environ: Mapping[str, str], start: Callable[[], str]) -> Place | None:
    """Return the workspace to use, searching upwards from the folder `start()`; None if there is none."""
    folder, url = given.get("dir"), given.get("url")
    if folder == "" or url == "":
        raise _usage("--dir and --url must not be empty")
    if folder and url:
        raise _usage("--dir and --url exclude each other", hint="give one of them")
    if folder:
        return Place("--dir", folder=_inside(check_folder(folder, "--dir")))
    if url:
        return Place("--url", url=url)
    if environ.get("HOLDFAST_DIR"):
        return Place("HOLDFAST_DIR", folder=_inside(check_folder(environ["HOLDFAST_DIR"], "HOLDFAST_DIR")))
    if environ.get("HOLDFAST_URL"):
        return Place("HOLDFAST_URL", url=environ["HOLDFAST_URL"])
    return _upwards(start())


def _usage(message: str, hint: str = "") -> HoldfastError:
    from holdfast.faces.cli.args import Usage

    return Usage(message, hint=hint)


def check_folder(folder: str, source: str) -> str:
    """Return a folder that --dir or HOLDFAST_DIR names. Raises Usage if it is the address of a server."""
    if folder.startswith(("http:/", "https:/", "unix:/")):
        instead = f"--url {folder}" if source == "--dir" else f"export HOLDFAST_URL={folder}"
        raise _usage(f"{source} must be a folder, but {folder} is an address", hint=f"name a server with {instead}")
    return folder


def home(start: str) -> str:
    """Return where a new workspace goes: the main worktree of the git repository, or the folder itself.

    A workspace in a folder inside the repository comes first, because commands there use it.
    """
    nearer = None
    for folder in _folders(start):
        common = git_common(folder)
        if common is not None:
            return nearer or os.path.join(_main_worktree(common), FOLDER)
        if nearer is None and has_store(os.path.join(folder, FOLDER)):
            nearer = os.path.join(folder, FOLDER)
    return os.path.join(os.path.abspath(start), FOLDER)


def missing(start: str, backups: int) -> NotFound:
    """The error for a missing workspace."""
    from holdfast.errors import NotFound

    hint = "make one here: holdfast init; or name another with --dir, HOLDFAST_DIR or HOLDFAST_URL"
    if backups:
        hint = f"restore one of the {backups} backups of the workspace that was here: holdfast restore; or {hint}"
    return NotFound(f"there is no workspace at {start} or above", hint=hint)


def has_store(folder: str) -> bool:
    """Whether a folder holds a workspace, or what is left of one: no other is used, or made, in its place."""
    if any(os.path.exists(os.path.join(folder, part)) for part in _PARTS):
        return True
    left = [path for mark in _MARKS if os.path.exists(path := os.path.join(folder, mark)) and os.path.getsize(path)]
    return bool(left) and not os.path.exists(os.path.join(folder, _LOG))


def unusable(start: str) -> str | None:
    """Return the nearest `.holdfast` upwards if it does not tell what is locked; None if it has a store, or is none.

    It cannot be searched by this user, or is that of a replica whose store was removed.
    """
    for folder in _folders(start):
        common = git_common(folder)
        shared = [] if common is None else [os.path.join(_main_worktree(common), FOLDER)]
        for each in (*shared, os.path.join(folder, FOLDER)):
            if has_store(each):
                return None
            closed = os.path.isdir(each) and not os.access(each, os.X_OK)
            if closed or os.path.exists(os.path.join(each, _LOG)):
                return each
    return None


def _inside(folder: str) -> str:
    """The given folder, or the `.holdfast` in it if it is a project that has one."""
    folder = os.path.abspath(os.path.expanduser(folder))
    inner = os.path.join(folder, FOLDER)
    return inner if not has_store(folder) and has_store(inner) else folder


def _upwards(start: str) -> Place | None:
    for folder in _folders(start):
        common = git_common(folder)
        if common is not None:
            shared = os.path.join(_main_worktree(common), FOLDER)
            if has_store(shared):
                where = "in this git repository" if os.path.dirname(shared) == folder else "in its main git worktree"
                return Place(f"found {where}", folder=shared, chosen=False)
        own = os.path.join(folder, FOLDER)
        if has_store(own):
            where = "in this folder" if folder == os.path.abspath(start) else "above this folder"
            return Place(f"found {where}", folder=own, chosen=False)
    return None


def _folders(start: str) -> list[str]:
    """A folder and those above it."""
    folder = os.path.abspath(start)
    found = [folder]
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        found.append(folder)
    return found


# --- paths in a project ----------------------------------------------------------------------------------------------


def project_root(workspace: str | None, path: str) -> str | None:
    """Return the folder from which every face counts a path; None if none is known.

    It is the one beside the workspace's `.holdfast`, or its counterpart in the linked worktree that holds the path,
    also for a file of a submodule or of a repository inside the project. A path elsewhere, as with a server or a
    workspace that was named, counts from its own repository, and in a submodule from the one that this belongs to.
    """
    home = None
    if workspace is not None and os.path.basename(workspace) == FOLDER:
        home = os.path.dirname(workspace)
    own = owned = None
    for folder in _folders(path):
        if home is not None and _same(folder, home):
            return folder
        common = git_common(folder)
        if common is None:
            continue
        if home is not None and (inside := _within_worktree(home, common)) is not None:
            return os.path.normpath(os.path.join(folder, inside))
        if folder != path and (owned is None or owned.startswith(os.path.join(common, ""))):
            own, owned = folder, common  # the git folder of a submodule is in that of its repository
    return own


def _within_worktree(home: str, common: str) -> str | None:
    """Where a folder lies in its worktree, if that is one of the repository with this git folder."""
    if _same(home, common):  # a bare repository has its workspace in itself
        return "."
    root = git_root(home)
    return os.path.relpath(home, root) if root is not None and _same(git_common(root) or "", common) else None


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is missing
        return False


# --- git -------------------------------------------------------------------------------------------------------------


def git_root(start: str) -> str | None:
    """Return the root of the worktree that contains a folder, or None."""
    return next((folder for folder in _folders(start) if git_common(folder) is not None), None)


def worktrees(root: str) -> list[str]:
    """Return the roots of all worktrees of a repository, also of those that are gone; without git the given one."""
    common = git_common(root)
    found = [root] if common is None else [root, _main_worktree(common)]
    private = "" if common is None else os.path.join(common, "worktrees")
    for name in sorted(os.listdir(private)) if os.path.isdir(private) else ():
        pointer = _line(os.path.join(private, name, "gitdir"))  # to the file .git in the worktree
        if pointer:
            found.append(os.path.dirname(os.path.join(private, name, pointer)))
    return list(dict.fromkeys(map(os.path.realpath, found)))


def git_common(folder: str) -> str | None:
    """Return the git folder that all worktrees share, if this folder is the root of one."""
    dot = os.path.join(folder, ".git")
    if os.path.isdir(dot):
        return dot if os.path.exists(os.path.join(dot, "HEAD")) else None
    pointer = _line(dot)
    if pointer is None or not pointer.startswith("gitdir:"):
        return None
    private = os.path.normpath(os.path.join(folder, pointer.removeprefix("gitdir:").strip()))
    common = _line(os.path.join(private, "commondir"))
    if common is None:  # a submodule, or a repository whose git folder is elsewhere: it has its own
        return private if os.path.isdir(private) else None
    return os.path.normpath(os.path.join(private, common))


def _main_worktree(common: str) -> str:
    """The first worktree; for a bare repository its own folder, which no worktree can clean."""
    if os.path.basename(common) == ".git":
        return os.path.dirname(common)
    chosen = _configured_worktree(common)
    return common if chosen is None else os.path.normpath(os.path.join(common, chosen))


def _configured_worktree(common: str) -> str | None:
    """`core.worktree`, which submodules have."""
    try:
        with open(os.path.join(common, "config"), encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return None
    found = [line.partition("=")[2].strip() for line in lines if line.replace(" ", "").startswith("worktree=")]
    return found[-1] if found else None


def _line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


# --- tasks that travel with the repository ----------------------------------------------------------------------------

SHARED: Final = "holdfast.jsonl"


def unread_share(folder: str | None, start: str) -> str | None:
    """Return the shared file of the worktree that contains `start`, if it is not as it was when it was read last.

    Only for the repository's own workspace: another one was named on purpose, and has other tasks.
    """
    root = git_root(start)
    if root is None or folder is None or os.path.realpath(folder) != os.path.realpath(home(root)):
        return None
    path = os.path.join(root, SHARED)
    state = share_state(path)
    return None if state is None or _line(share_mark(folder, path)) == state else path


def share_state(path: str) -> str | None:
    """Return what changes with a file, None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def share_mark(folder: str, path: str) -> str:
    """Return where it is noted which state of a shared file was read last: in the workspace, for each worktree."""
    from hashlib import sha256

    return os.path.join(folder, f"shared-{sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]}")


# --- outside the tree ------------------------------------------------------------------------------------------------


def state_folder(environ: Mapping[str, str]) -> str:
    """Return the user's folder for what must outlive a project's folder."""
    base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "holdfast")


def label(name: str, is_url: bool = False) -> str:
    """Return a file name for what belongs to a workspace but is kept outside of it."""
    from hashlib import sha256

    name = name.rstrip("/") if is_url else os.path.realpath(name)
    project = "server" if is_url else os.path.basename(os.path.dirname(name)) or "root"
    return f"{project}-{sha256(os.fsencode(name)).hexdigest()[:12]}"


def private_folder(place: Place, environ: Mapping[str, str]) -> str:
    """Return where what a user keeps about a workspace lies: in its folder, or in the user's own for a server."""
    if place.folder is not None:
        return place.folder
    return os.path.join(state_folder(environ), "servers", label(place.name, is_url=True))


_DETACHED: Final = "import os; os.setsid(); os.chdir('/'); from holdfast.faces.cli import start; start()"


def start_copying(store: str, environ: Mapping[str, str]) -> None:
    """Start `holdfast backup --rolling`, which outlives this process and is detached from its terminal and folder."""
    import sys

    command = [sys.executable, "-c", _DETACHED, "backup", "--rolling", "--dir", store]
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    os.posix_spawn(sys.executable, command, environ, file_actions=quiet)
