"""The registry: checkpoints, the gate, channels, fleets and proofs."""
