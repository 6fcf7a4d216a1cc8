"""Servers and their callers: addresses, one client, errors as problems, bodies within bounds."""
