"""A federation between machines on Flower: what runs on the server's machine and on every agent's."""
