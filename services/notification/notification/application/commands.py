"""What an operator may do with a message in doubt."""

from uuid import UUID

from messaging.unit_of_work import UnitOfWork
from notification.application import queries
from notification.application.queries import NotificationView
from notification.delivery import ledger
from notification.domain.errors import NoSuchNotification, NotInDoubt
from notification.domain.notification import NotificationState, Resolution


async def resolve(uow: UnitOfWork, notification_id: UUID, resolution: Resolution) -> NotificationView:
    """The message afterwards. Raises NoSuchNotification, or NotInDoubt if its state has changed."""
    start = (NotificationState.IN_DOUBT,)
    match resolution:
        case Resolution.SENT:
            resolved = await ledger.record_sent(uow, notification_id, sid=None, start=start)
        case Resolution.SEND_AGAIN:
            resolved = await ledger.send_again(uow, notification_id, attempt=None)
        case Resolution.GIVE_UP:
            reason = "given up by a person"
            resolved = await ledger.record_failed(uow, notification_id, attempt=None, reason=reason, start=start)
    view = await queries.one(uow.session, notification_id)
    if view is None:
        raise NoSuchNotification(notification_id)
    if not resolved:
        raise NotInDoubt(notification_id, view.state)
    return view
