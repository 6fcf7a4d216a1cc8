"""What Penstock says of itself: metrics from one catalogue, and log lines with structure."""
