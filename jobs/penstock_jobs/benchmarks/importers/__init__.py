"""Results of other harnesses: a module for each format, with NAME, `recognises` and `collect`."""
