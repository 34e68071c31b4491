"""Exit code and log of a server that gets a signal during its start."""

import asyncio
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from apiext import cli, launch
from apiext.app import Application, EtcdUnreachableError
from apiext.config import Config, Worker
from apiext.system.worker_progress import WorkerProgress


async def stop_before_etcd_answers(config: Config) -> None:
    """Start a server with an etcd that accepts connections but never answers.

    Stop the server as a signal does.
    """
    application = Application(config, lambda line: None, lambda *ready: None)
    asyncio.get_running_loop().call_later(0.3, application._on_signal)
    await application.serve()


@pytest.mark.parametrize(
    ("number", "error"), [(1, EtcdUnreachableError), (2, launch.StoppedError), (3, launch.StoppedError)]
)
def test_only_first_worker_reports_missing_etcd(tmp_path: Path, number: int, error: type[Exception]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        etcd = f"--etcd-servers=http://127.0.0.1:{silent.getsockname()[1]}"
        flags = ["--insecure", "--port=0", "--workers=3", f"--data-dir={tmp_path}", etcd]
        config = cli.parse_serve(flags, {}, lambda line: None)
        worker = Worker(number, 3, progress=WorkerProgress.make(3).descriptor)
        with pytest.raises(error):
            asyncio.run(stop_before_etcd_answers(replace(config, worker=worker)))
