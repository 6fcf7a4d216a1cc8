"""What every room stands on: errors, settings, time, logs, metrics, names, signatures."""
