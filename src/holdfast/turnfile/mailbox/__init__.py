"""MAILBOX.md and its projection MAILBOX.json. All pure: text in, text out.

`document` is the way in: a mailbox with its sections, tables and cards, edited by spans. Below it are `markdown`,
`blocks` and `cards` (three dialects); above it `derived` (what the tables must say), `composing` (new cards), `steps`
(who may do what), `rules` (what is wrong) and `projection` (what programs read).
"""
