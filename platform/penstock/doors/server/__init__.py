"""The HTTP service: its routes, and the process that runs them."""
