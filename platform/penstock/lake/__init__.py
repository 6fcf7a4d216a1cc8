"""The lake: segments of events in Parquet, the commits that add them, and queries over them."""
