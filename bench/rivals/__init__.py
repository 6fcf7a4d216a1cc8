"""Other people's tools over the same data in the same run. A `…_records.py`, `…_samples.py` or
`…_service.py` is a contender and runs in a process of its own; the rivals' run in `.venv-rivals`,
which `make .venv-rivals` builds, and import nothing of Penstock's."""
