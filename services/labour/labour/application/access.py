"""Authorisation: the caller's relation to a labour, and the actions that it allows. Every command and query about a labour
is checked here.

To a stranger a labour does not exist, so that guessing ids reveals nothing. A person is a stranger until the mother approves
them, and again after they leave or are removed or blocked.
"""

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from labour.application.allowances import DEFAULT_ALLOWANCES, Allowances
from labour.application.usage import Usage
from labour.domain.errors import HiddenLabour, NoSuchLabour, NotYours, VersionChanged
from labour.domain.labour import Labour
from labour.domain.subscriber import Role, SubscriberState
from labour.storage import Labours, labour_table, subscriber_table
from messaging.unit_of_work import UnitOfWork


class Action(Enum):
    READ = "read the labour and its updates"
    READ_CONTRACTIONS = "read contractions and advice"
    MANAGE = "change the labour, and read what only the mother may read"


class Relation(Enum):
    MOTHER = "mother"
    BIRTH_PARTNER = "birth-partner"
    SUBSCRIBER = "subscriber"
    STRANGER = "stranger"

    def may(self, action: Action) -> bool:
        return action in _ALLOWED[self]


_ALLOWED: dict[Relation, tuple[Action, ...]] = {
    Relation.MOTHER: tuple(Action),
    Relation.BIRTH_PARTNER: (Action.READ, Action.READ_CONTRACTIONS),
    Relation.SUBSCRIBER: (Action.READ,),
    Relation.STRANGER: (),
}


async def authorize(connection: AsyncConnection, caller: str, labour_id: UUID, action: Action) -> Relation:
    """Check a query, which loads no labour, and return the caller's relation. Raises as `permit` does, and `NoSuchLabour`."""
    relation = await _stored_relation(connection, caller, labour_id)
    if relation is None:
        raise NoSuchLabour(labour_id)
    permit(relation, action, labour_id)
    return relation


def permit(relation: Relation, action: Action, labour_id: UUID) -> None:
    """Raises `HiddenLabour` for a stranger, and `NotYours` if the caller may see the labour but not do this."""
    if relation is Relation.STRANGER:
        raise HiddenLabour(labour_id)
    if not relation.may(action):
        raise NotYours(labour_id)


def relation_to(labour: Labour, caller: str) -> Relation:
    if labour.mother_id == caller:
        return Relation.MOTHER
    approved = (one for one in labour.subscribers if one.state is SubscriberState.APPROVED)
    return _relation_of(next((one.role for one in approved if one.user_id == caller), None))


def _relation_of(role: Role | None) -> Relation:
    if role is None:
        return Relation.STRANGER
    return Relation.BIRTH_PARTNER if role is Role.BIRTH_PARTNER else Relation.SUBSCRIBER


async def _stored_relation(connection: AsyncConnection, caller: str, labour_id: UUID) -> Relation | None:
    """The caller's relation by the rows of the database; None if the labour does not exist."""
    own_row = and_(
        subscriber_table.c.labour_id == labour_table.c.id,
        subscriber_table.c.user_id == caller,
        subscriber_table.c.state == SubscriberState.APPROVED,
    )
    statement = select(labour_table.c.mother_id, subscriber_table.c.role).outerjoin(subscriber_table, own_row)
    row = (await connection.execute(statement.where(labour_table.c.id == labour_id))).first()
    if row is None:
        return None
    return Relation.MOTHER if row.mother_id == caller else _relation_of(row.role)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What every command gets. `seen` is the version of the labour that the caller has read (If-Match), if they named one.

    A command adds to `usage` what it uses of the caller's allowance.
    """

    uow: UnitOfWork
    caller: str
    seen: int | None = None
    allowances: Allowances = DEFAULT_ALLOWANCES
    usage: Usage = field(default_factory=Usage)

    @property
    def labours(self) -> Labours:
        return Labours(self.uow)

    async def labour(self, labour_id: UUID) -> Labour:
        """Load a labour in order to change it. Raises as `permit` does unless the caller is the mother, and `VersionChanged`
        if the labour is no longer in the version `seen`.
        """
        labour = await self.labours.get(labour_id)
        permit(relation_to(labour, self.caller), Action.MANAGE, labour_id)
        if self.seen is not None and labour.version != self.seen:
            raise VersionChanged(labour_id)
        return labour
