"""Tasks that are mined from a repository and its sessions, verified, and judged by people."""
