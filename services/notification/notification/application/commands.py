"""The command of operators: resolve a message in doubt."""

from uuid import UUID

from messaging.unit_of_work import UnitOfWork
from notification.delivery import ledger
from notification.domain.errors import NewerTaken, NoSuchNotification, NotInDoubt
from notification.domain.notification import NotificationState, Resolution
from notification.domain.transitions import record_failed, record_sent, send_again


async def resolve(uow: UnitOfWork, notification_id: UUID, resolution: Resolution) -> None:
    """Raises NoSuchNotification, NotInDoubt if its state has changed, or NewerTaken if it would follow a newer message."""
    if resolution is Resolution.SEND_AGAIN and await ledger.must_not_be_sent_again(uow.connection, notification_id):
        raise NewerTaken(notification_id)
    start = (NotificationState.IN_DOUBT,)
    match resolution:
        case Resolution.SENT:
            transition = record_sent(notification_id, sid=None, start=start)
        case Resolution.SEND_AGAIN:
            transition = send_again(notification_id, attempt=None)
        case Resolution.GIVE_UP:
            transition = record_failed(notification_id, attempt=None, reason="given up by an operator", start=start)
    if not await ledger.apply_one(uow, transition):
        state = await ledger.state(uow.connection, notification_id)
        raise NoSuchNotification(notification_id) if state is None else NotInDoubt(notification_id, state)
