"""Rooms in which the programs of others run: an attempt's agent, and then its check.

`isolated` keeps programs from the rest of the machine by namespaces of Linux; `plain` keeps nothing
from anybody. A room runs in a process of its own: `process`.
"""
