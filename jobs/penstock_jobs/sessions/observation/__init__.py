"""Observes edited files at the horizons of rewards and at commits, in place of an editor."""
