"""Holdfast inside of other people's frameworks, each in a module that needs an extra."""
