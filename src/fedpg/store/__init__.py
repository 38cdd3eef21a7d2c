"""A run on disk: its folder, configuration, manifest, metrics and checkpoint."""
