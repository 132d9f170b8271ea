"""Which workflow a task goes to, and why.

This is the pure half of routing: text in, rules and decisions out. No store, no clock, no file is touched here; the
operations on top read the files, store what was read, and ask `matchers.decide` with what the store holds.
"""
