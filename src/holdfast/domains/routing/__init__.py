"""The rules and settings of a workspace, and the files they come from.

This is the pure half of routing: text in, rules and decisions out. No store, no clock, no file is touched here; the
operations on top read the files, store what was read, and ask `matchers.decide` with what the store holds.
"""

from __future__ import annotations

from typing import Final

CONFIG: Final = "config"
ROUTES: Final = "routes"
FILES: Final = {CONFIG: "config.yaml", ROUTES: "grimoire-matchers.yaml"}
