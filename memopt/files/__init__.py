"""Files: written whole or not at all, on any file system, and kept between processes."""
