"""Redaction: what secrets and personal data look like, and how they leave a line of events before
anything of it is kept."""
