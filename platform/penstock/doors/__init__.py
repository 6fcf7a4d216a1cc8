"""The doors put the rooms together and decide nothing: server, commands, console, proxy, Python."""
