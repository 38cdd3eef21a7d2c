"""What runs an algorithm: many seeds in one program, or one call at a time."""
