"""The rewards: one file each, with one pure function over a bucket of sessions. A new reward is a
new file here."""
