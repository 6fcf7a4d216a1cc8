"""The engines that follow a channel, and what each of them has loaded."""
