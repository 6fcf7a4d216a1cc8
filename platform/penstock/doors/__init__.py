"""What puts the rooms together and decides nothing: server, commands, console, proxy, Python."""
