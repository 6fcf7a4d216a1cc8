"""Ingest: from requests to the event log, and from the log to segments."""
