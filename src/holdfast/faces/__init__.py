"""Faces: how the operations of a workspace are reached from outside. Each is derived from the one table of them."""
