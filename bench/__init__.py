"""`make bench`: every figure that the documentation claims, measured against others of the same
run. Clocks of shared machines are noisy; ratios hold better than seconds."""
