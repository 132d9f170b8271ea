"""Commands made by hand: what is more than one operation. A module has `COMMANDS`; `command.HAND_MADE` names all."""
