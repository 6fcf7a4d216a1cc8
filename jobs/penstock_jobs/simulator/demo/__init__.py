"""`penstock demo`: the whole loop on simulated users."""
