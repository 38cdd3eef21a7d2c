"""The server's half."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the federation that the run's configuration names."""
    from fedpg.flower.server_app import serve

    serve(grid, dict(context.run_config))
