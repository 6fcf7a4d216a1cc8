"""OTLP over HTTP: spans and log records of coding agents, as events."""
