"""Looks at edited files, at the horizons of rewards and at commits, where no editor does."""
