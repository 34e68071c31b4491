"""Writes whose retry is refused: their outcome is unknown, and reported as unknown."""

import pytest

from apiext.etcd import errors, messages
from apiext.etcd.transport import Transport
from tests.unit.etcd.mini import LOST, UNSENT, Fault, Mini
from tests.unit.etcd.test_client import client

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(("fault", "told"), [(LOST, errors.UnknownOutcome), (UNSENT, errors.AuthError)])
async def test_refused_login_of_a_retry_depends_on_first_attempt(
    monkeypatch: pytest.MonkeyPatch, fault: errors.EtcdError, told: type[errors.EtcdError]
) -> None:
    """The password changed after the first attempt, so the login of the retry fails.

    If the response of the first attempt was lost, the outcome is unknown; if it was not sent, the login's error is
    raised.
    """

    async def refused(_: float) -> Transport:
        raise errors.AuthError(errors.INVALID_ARGUMENT, "etcdserver: authentication failed")

    mini = Mini()
    async with client(mini) as etcd:
        made = await etcd.create(b"/k", b"1")
        mini.faults.append(Fault(messages.TXN, fault))
        monkeypatch.setattr(etcd._calls, "connection", refused)
        with pytest.raises(errors.EtcdError) as caught:
            await etcd.update(b"/k", b"2", made.revision)
        assert type(caught.value) is told
        monkeypatch.undo()


async def test_writes_of_unknown_outcome_are_logged_with_a_rate_limit(caplog: pytest.LogCaptureFixture) -> None:
    mini = Mini()
    async with client(mini) as etcd:
        for at in range(5):
            mini.faults.append(Fault(messages.TXN, LOST))
            with pytest.raises(errors.UnknownOutcome):
                await etcd.create(b"/k%d" % at, b"1")
        told = [record.getMessage() for record in caplog.records]
        outcome = "the outcome of the write is unknown: connection lost: reset"
        assert told == [f"it is unknown whether etcd has written /k0: {outcome}"]
