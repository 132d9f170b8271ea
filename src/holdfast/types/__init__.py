"""What operations answer: plain, frozen structs with aware times, a module for each domain.

They are the same in process, over HTTP (as JSON, times in RFC 3339) and on the command line. A module is loaded with
the domain that needs it.
"""
