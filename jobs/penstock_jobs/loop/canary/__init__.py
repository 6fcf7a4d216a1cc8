"""Canaries: a new checkpoint serves part of the traffic and is compared by live metrics.

It gets more traffic step by step, or is rolled back. After full promotion it is watched."""
