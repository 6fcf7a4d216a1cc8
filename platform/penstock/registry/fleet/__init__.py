"""Fleets: the engines that follow a channel, and what each has loaded."""
