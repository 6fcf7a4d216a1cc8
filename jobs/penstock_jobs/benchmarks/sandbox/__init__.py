"""Where the programs of others run: the agent of an attempt, and then its check.

The isolated sandbox keeps programs from the rest of the machine by namespaces of Linux, in a
`process` of its own; the plain one only bounds time, output and the memory of each process."""
