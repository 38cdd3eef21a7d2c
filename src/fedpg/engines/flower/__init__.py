"""Flower as the way between machines: `link` on the server's side, `relay` on the agents'. The only files that import flwr."""
