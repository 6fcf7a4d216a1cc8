"""What each exporter calls things: one module for each, from spans or records to drafts."""
