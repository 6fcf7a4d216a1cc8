"""The base of every room: errors, settings, time, logs, metrics, files, keys."""
