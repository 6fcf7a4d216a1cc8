"""Harbor's task format: read as suites, and written."""
