"""What survives when processes race, die, fill the disk or are interrupted: `python -m benchmarks.torture`."""
