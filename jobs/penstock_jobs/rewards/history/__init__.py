"""History around sessions: their chains, and commits of repositories as later states."""
