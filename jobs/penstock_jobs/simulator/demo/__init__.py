"""The whole loop on simulated users, to be watched: what `penstock demo` is made of."""
