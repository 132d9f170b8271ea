"""One call of the command line: which workspace, who acts, how the answer is printed.

A command gets it with its arguments. The workspace is opened when it is first asked for, so that what needs none is not
in need of one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from holdfast import errors
from holdfast.faces.cli import place as places
from holdfast.faces.cli.held import Held
from holdfast.faces.cli.output import Output
from holdfast.faces.cli.words import Argument, Usage

if TYPE_CHECKING:
    from holdfast.remote import RemoteWorkspace
    from holdfast.workspace import Workspace

# What every command takes.
GLOBAL: Final = (
    Argument("dir", option="--dir", help="the folder of the workspace"),
    Argument("url", option="--url", help="the address of a server, instead"),
    Argument("actor", option="--actor", help="who acts; else HOLDFAST_ACTOR"),
    Argument("json", "flag", "--json", help="answer as JSON; also HOLDFAST_JSON=1"),
    Argument("quiet", "flag", "--quiet", "-q", help="print the id alone"),
    Argument("key", option="--key", help="an idempotency key: a repeated call gets the first answer"),
    Argument(
        "fence",
        option="--fence",
        of="LOCK:TOKEN",
        help="only while this lock is held with this token; of a cell RUN/CELL, of a stash TRAIL/NAME, /NAME or its id",
    ),
    Argument("at_least", option="--at-least", of="REVISION", help="read nothing older than this, or latest"),
    Argument("help", "flag", "--help", "-h", help="show what a command takes"),
)


class Session:
    """A call, from its global options and the environment."""

    def __init__(self, given: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        if given.get("actor") == "":
            raise Usage("--actor is followed by a name, and this one is empty")
        self.given = given
        self.environ = environ
        self.out = Output(is_json(given, environ), bool(given.get("quiet")), environ)

    @cached_property
    def folder(self) -> str:
        """The current folder."""
        try:
            return os.getcwd()
        except FileNotFoundError as error:
            raise errors.NotFound("the current folder is gone", hint="go to another, or name one with --dir") from error

    @cached_property
    def place(self) -> places.Place:
        """The workspace that is meant; NotFound if there is none."""
        found = self.find_place()
        if found is None:
            from holdfast.faces.cli.rolling import backups_of

            raise places.missing(self.folder, len(backups_of(places.home(self.folder), self.environ)))
        return found

    def find_place(self) -> places.Place | None:
        """The workspace that is meant, if there is one."""
        return places.find(self.given, self.environ, lambda: self.folder)

    @property
    def actor(self) -> str | None:
        """Who acts, if somebody chose a name."""
        return self.given.get("actor") or self.environ.get("HOLDFAST_ACTOR") or None

    def open(self, writing: bool = False) -> Workspace | RemoteWorkspace:
        """The workspace, in the context of this call. A folder that was named is made by the first write."""
        place = self.place
        if place.folder is None:
            return self._connect(place.name)
        if not place.exists and not (writing and place.chosen):
            raise errors.NotFound(
                f"there is no workspace in {place.folder} ({place.why})", hint="holdfast init makes one"
            )
        from holdfast.workspace import open_workspace

        if not place.exists:
            print(f"holdfast: there was no workspace in {place.folder}, so it is made", file=sys.stderr)
        workspace = open_workspace(place.folder, actor=self.actor)
        return workspace.using(**self._context())

    def _connect(self, url: str) -> RemoteWorkspace:
        from holdfast.faces.cli.credentials import credentials
        from holdfast.remote import connect

        known = credentials(url, self.environ)
        return connect(url, token=known.token, actor=self.actor, verify=known.verify).using(**self._context())

    def _context(self) -> dict[str, Any]:
        given = self.given
        context: dict[str, Any] = {"key": given.get("key")}
        if given.get("fence"):
            name, _, token = given["fence"].rpartition(":")
            if not name or not token.isdigit():
                raise Usage("--fence is LOCK:TOKEN, such as deploy:40960, run/cell:40960 or /name:40960")
            context["fence"] = (name, int(token))
        at_least = given.get("at_least")
        if at_least is not None:
            if at_least != "latest" and not at_least.isdigit():
                raise Usage("--at-least is a revision, or latest")
            context["at_least"] = at_least if at_least == "latest" else int(at_least)
        return context

    def in_project(self, path: str) -> str | None:
        """A path as all worktrees of the project call it, from its root; None if it lies outside.

        What is given counts from the current folder. Patterns are paths here: only how they begin matters.
        """
        path = os.path.abspath(os.path.join(self.folder, path))
        root = places.git_root(os.path.dirname(path)) or self._project()
        relative = os.path.relpath(path, root)
        return None if relative.startswith("..") else relative.replace(os.sep, "/")

    def _project(self) -> str:
        """The root of a project without git: where its workspace lies."""
        above, name = os.path.split(self.place.folder or "")
        return above if name == places.FOLDER else self.folder

    def held(self, actor: str) -> Held:
        """What an actor holds here."""
        place = self.place
        if place.folder is not None:
            return Held(place.folder, actor)
        return Held(
            os.path.join(places.state_folder(self.environ), "servers", places.label(place.name, is_url=True)), actor
        )


def is_json(given: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether answers, and errors, are JSON."""
    return bool(given.get("json", environ.get("HOLDFAST_JSON") not in (None, "", "0")))
