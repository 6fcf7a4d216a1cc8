"""From sessions to the rows of a shard: branches, tokens, credit and columns."""
