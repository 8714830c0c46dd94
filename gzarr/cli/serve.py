"""The command ``gzarr serve``."""

from typing import Annotated

import typer

from gzarr.cli.options import NodePath, command


@command("Look at data")
def serve(
    path: NodePath,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Who can connect: 127.0.0.1 only this machine, 0.0.0.0 everybody.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0 for any that is free.")] = 8000,
    origin: Annotated[
        str, typer.Option(metavar="URL", help="The web page that may read the data; * for every one.")
    ] = "*",
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Also serve what symbolic links out of the folder lead to.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print requests.")] = False,
) -> None:
    """Serve data over HTTP, for reading: to viewers in a browser, xarray, fsspec, and gzarr on another machine.

    The folder, archive or database is served with everything in it.

    Examples
    --------
    $ gzarr serve data.zarr
    $ gzarr serve data.zip --port 9000
    $ gzarr serve /data --host 0.0.0.0 --origin https://viewer.example
    """
    from gzarr.cli.http_server import StoreServer, open_served

    store, prefix = open_served(path, follow_links=follow_links)
    try:
        listening = StoreServer(store, prefix, (host, port), origin=origin, quiet=quiet)
    except OSError as error:
        raise OSError(
            f"cannot listen at {host}, port {port}: {error.strerror}; pass another --port or --host"
        ) from error
    with listening as server:
        print(f"{store} is served at {server.url} until Ctrl-C", flush=True)
        print(f"  gzarr.open({server.url!r})    xarray.open_zarr({server.url!r})    neuroglancer: zarr://{server.url}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:  # the way to end it, not a failure
            print("stopped")
