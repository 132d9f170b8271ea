"""The rules and settings of a workspace, and the files they are read from.

This package is pure: text in, rules and decisions out. It touches no clock and no file; `domains.routes` reads the
files, stores the parsed rules, and `rules.decide` applies them.
"""

from __future__ import annotations

from typing import Final

CONFIG: Final = "config"
ROUTES: Final = "routes"
FILES: Final = {CONFIG: "config.yaml", ROUTES: "grimoire-matchers.yaml"}
