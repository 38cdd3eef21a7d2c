"""The two halves of the Flower app. Neither is executed: `fedpg serve` and `fedpg join` perform their tasks themselves."""

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()
