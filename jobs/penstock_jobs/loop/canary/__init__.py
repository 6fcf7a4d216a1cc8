"""Canaries: a new checkpoint on a part of the traffic, compared with the current one by live
metrics, given more traffic step by step, or rolled back. After a full promotion it is watched."""
