"""Flower as the way between machines: `link` on the server's side, `relay` on the agents'. Only these two files import flwr."""
