"""Long operations on engines: results, killed workers, and speed."""
