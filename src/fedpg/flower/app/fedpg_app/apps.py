"""The two halves of the Flower app."""

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server = ServerApp()
client = ClientApp()
"""Never executed: agents are started by `fedpg join`, which performs its tasks itself (fedpg.flower.flwr_private)."""


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the federation whose options are in the file that the run's configuration names."""
    from fedpg.flower import server_app

    server_app.main(grid, str(context.run_config["options"]), bool(context.run_config["resume"]))
