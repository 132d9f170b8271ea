"""Commands made by hand: what is more than one operation. `command.HAND_MADE` names all and their modules."""
