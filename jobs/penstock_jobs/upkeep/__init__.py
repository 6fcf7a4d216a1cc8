"""Jobs that keep the lake in shape: they run while serving, and by `penstock lake`."""
