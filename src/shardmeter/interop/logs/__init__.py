"""What runs print, as measured numbers: one file a format."""
