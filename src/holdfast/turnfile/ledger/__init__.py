"""TURNFILE.yaml, the ledger: who works on what, and who may edit which shared file. All pure: text in, text out.

`codec` is the way in: it reads a text and answers changed ones. Below it are `yaml_tree` (where in the text each value
stands), `yaml_edit` (changes that touch nothing else), `header` and `sections`; beside it `locks` (overlap, staleness,
precedence), `notes` (the signals that transactions leave) and `rules` (lint).
"""
