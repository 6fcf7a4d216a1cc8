"""What sessions went through: their chains, and the commits of repositories as later states."""
