"""What users did next, as numbers: rewards over buckets of sessions."""
