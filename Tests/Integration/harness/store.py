"""Gateways with a store, and the files in its folder."""


def storing(path, **settings):
    """The environment of a gateway with a store."""
    names = {f"DRAWBRIDGE_STORE_{name.upper()}": str(value) for name, value in settings.items()}
    return {"DRAWBRIDGE_STORE_ENGINE": "sqlite", "DRAWBRIDGE_STORE_PATH": str(path), **names}


def opened(gateway):
    """The log line about the opening of the store."""
    return next(record for record in gateway.records if record["message"].startswith("store opened"))


def failed_files(path):
    """The databases that have failed and were set aside."""
    files = path.parent.glob(f"{path.name}.failed-*")
    return sorted(file.name for file in files if not file.name.endswith("-wal"))


def filled(folder):
    """Fills the file system of a folder. Returns the file to remove."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as output:
        try:
            while True:
                output.write(b"\0" * 4096)
        except OSError:
            return file


async def contains(client, delivery):
    """Whether the gateway knows this delivery."""
    return (await client.request("GET", f"/v1/deliveries/{delivery}")).status == 200
