"""The console: pages over the calls and queries of all rooms. It holds the frame, signing in, and
what pages share; a room hands its pages over by the entry points `penstock.pages`."""
