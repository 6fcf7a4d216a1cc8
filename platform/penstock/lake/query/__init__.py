"""Read-only SQL over a tenant's rows: what may run, in which process, and what it may read."""
