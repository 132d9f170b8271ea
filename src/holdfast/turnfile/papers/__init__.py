"""The other shared files of a session, and what must hold among all of them. All pure: texts in, texts out.

`worklog` and `questions` read and extend WORKLOG.md and OPEN_QUESTIONS.md; `invariants` finds what is wrong in any of
the files, `settling` decides whether an edit may be written and adds the projection, `templates` are those of a new
session.
"""
