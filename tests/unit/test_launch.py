"""Log lines of task exceptions that no code has retrieved."""

import asyncio
import gc
import ssl

import pytest

from apiext import launch


async def raise_error(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "in_task", "told"),
    [
        (ssl.SSLCertVerificationError("a handshake"), False, False),
        (ConnectionResetError("a connection"), False, False),
        (OSError("a file"), True, True),
        (ValueError("a fault"), False, True),
    ],
)
def test_unretrieved_exceptions_are_logged(
    caplog: pytest.LogCaptureFixture, error: Exception, in_task: bool, told: bool
) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(launch.caught)
        if in_task:
            task = loop.create_task(raise_error(error))
            runner.run(asyncio.sleep(0))
            del task
        else:
            loop.create_future().set_exception(error)
        gc.collect()
    assert ("never retrieved" in caplog.text) == told
