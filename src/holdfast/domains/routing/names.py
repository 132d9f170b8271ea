"""The documents of a workspace and the files they come from; apart, so that looking for them loads nothing else."""

from __future__ import annotations

from typing import Final

CONFIG: Final = "config"
ROUTES: Final = "routes"
FILES: Final = {CONFIG: "config.yaml", ROUTES: "grimoire-matchers.yaml"}
