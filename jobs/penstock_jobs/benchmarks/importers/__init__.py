"""Results of other harnesses, read as they are. A format is a module with `NAME`,
`recognises(path)` and `read(path, options)`. Nothing is guessed; what is left out is reported."""
