"""Results of other harnesses. A format is a module with `NAME`, `recognises(path)` and
`collect(trials)`. Nothing is guessed; what is left out is reported."""
