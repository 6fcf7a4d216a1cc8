"""Redaction: finding secrets and personal data in lines of events, and masking them before the
lines are kept."""
