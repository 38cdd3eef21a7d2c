"""A real federation: what runs on the server's machine and on every agent's, around the engine of `fedpg.flower.remote`."""
