"""The aggregate: one labour with its contractions, subscribers and invites. Each method checks, changes and records an event."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import structs
from uuid_utils.compat import uuid7

from contracts import events
from labour.domain import errors
from labour.domain.contraction import Contraction, Phase, phase_after, problem_with_times
from labour.domain.invite import INVITE_LIMIT, VALID_INVITE_LIMIT, Invite
from labour.domain.subscriber import Change, Channel, Role, Subscriber, SubscriberList, SubscriberState
from labour.domain.update import ANNOUNCEMENT_LIMIT, Update, UpdateKind, cooldown_after
from messaging.aggregate import Aggregate

CONTRACTION_LIMIT = 1000  # of a labour: a long one has some three hundred
EVER_LIMIT = 3000  # contractions of a labour, with those that were deleted: the statistics keep them


class Labour(Aggregate):
    """The lists are mapped to tables of their own; `SubscriberList` has the rules about subscribers."""

    def __init__(self, *, mother_id: str, mother_name: str, at: datetime, first_labour: bool = True) -> None:
        self.id: UUID = uuid7()
        self.mother_id, self.mother_name, self.first_labour = mother_id, mother_name, first_labour
        self.phase = Phase.PLANNED
        self.planned_at = at
        self.begun_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.announced_at: datetime | None = None
        self.announcements = 0
        self.notes: str | None = None
        self.roster_version = 0
        self.contractions_ever = 0  # started, also those that were deleted
        self.subscribers: list[Subscriber] = []
        self.contractions: list[Contraction] = []
        self.invites: list[Invite] = []
        self.version = 0
        self.record(
            events.LabourPlanned(labour_id=self.id, mother_name=mother_name, first_labour=first_labour, planned_at=at),
            at,
        )

    @property
    def event_key(self) -> str:
        return str(self.id)

    def begin(self, at: datetime) -> None:
        self._refuse_when_complete()
        if self.phase is not Phase.PLANNED:
            raise errors.LabourAlreadyBegun(self.id)
        self.phase, self.begun_at = Phase.EARLY, at
        roster = self.roster_version
        self.record(
            events.LabourBegun(labour_id=self.id, roster_version=roster, mother_name=self.mother_name, begun_at=at), at
        )

    def complete(self, at: datetime, notes: str | None = None, baby_name: str | None = None) -> None:
        """Allowed from any phase: a baby may come before its mother records the beginning. Only she can read the notes.

        The name is in the event only. Without one the event is version 1, which consumers of an older release handle as well.
        """
        self._refuse_when_complete()
        if any(one.is_running for one in self.contractions):
            raise errors.ContractionRunning(self.id)
        self.phase, self.completed_at, self.notes = Phase.COMPLETE, at, notes
        completed = events.LabourCompleted(
            labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, completed_at=at
        )
        if baby_name is not None:
            completed = events.LabourCompletedV2(**structs.asdict(completed), baby_name=baby_name)
        self.record(completed, at)

    def push(self, at: datetime) -> None:
        """The pushing phase is never derived from contractions: the mother records it."""
        self._refuse_when_complete()
        if self.phase is Phase.PLANNED:
            raise errors.LabourNotBegun(self.id)
        self._advance(Phase.PUSHING, at)

    # Contractions

    def start_contraction(self, started_at: datetime, now: datetime) -> Contraction:
        """The first contraction begins a planned labour."""
        self._refuse_when_complete()
        if any(one.is_running for one in self.contractions):
            raise errors.ContractionRunning(self.id)
        if len(self.contractions) >= CONTRACTION_LIMIT:
            raise errors.TooMany(self.id, "contractions", CONTRACTION_LIMIT, "Delete one that was recorded by mistake.")
        if self.contractions_ever >= EVER_LIMIT:
            raise errors.TooMany(self.id, "contractions", EVER_LIMIT, "Those that were deleted count.")
        contraction = Contraction(started_at)
        self._check_times(contraction, now)
        if self.phase is Phase.PLANNED:
            self.begin(now)
        self.contractions.append(contraction)
        self.contractions_ever += 1
        self.record(
            events.ContractionStarted(labour_id=self.id, contraction_id=contraction.id, started_at=started_at), now
        )
        return contraction

    def end_contraction(self, contraction_id: UUID, ended_at: datetime, intensity: int, now: datetime) -> Contraction:
        self._refuse_when_complete()
        contraction = self._contraction(contraction_id)
        if not contraction.is_running:
            raise errors.NoSuchContraction(self.id, contraction_id)
        self._correct(contraction, Contraction(contraction.started_at, ended_at, intensity), now)
        self.record(
            events.ContractionEnded(
                labour_id=self.id,
                contraction_id=contraction_id,
                started_at=contraction.started_at,
                ended_at=ended_at,
                intensity=intensity,
            ),
            now,
        )
        self._advance(phase_after(self.contractions, self.phase), now)
        return contraction

    def correct_contraction(
        self,
        contraction_id: UUID,
        now: datetime,
        *,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
        intensity: int | None = None,
    ) -> Contraction:
        """None leaves a value as it is. Of a running contraction only the start can be corrected."""
        self._refuse_when_complete()
        contraction = self._contraction(contraction_id)
        if contraction.is_running and (ended_at is not None or intensity is not None):
            raise errors.ContractionRunning(self.id)
        wanted = Contraction(
            started_at or contraction.started_at,
            ended_at or contraction.ended_at,
            contraction.intensity if intensity is None else intensity,
        )
        self._correct(contraction, wanted, now)
        self.record(
            events.ContractionCorrected(
                labour_id=self.id,
                contraction_id=contraction_id,
                started_at=contraction.started_at,
                ended_at=contraction.ended_at,
                intensity=contraction.intensity,
            ),
            now,
        )
        return contraction

    def delete_contraction(self, contraction_id: UUID, now: datetime) -> None:
        self._refuse_when_complete()
        self.contractions.remove(self._contraction(contraction_id))
        self.record(events.ContractionDeleted(labour_id=self.id, contraction_id=contraction_id), now)

    # Updates

    def post(self, kind: UpdateKind, text: str, at: datetime) -> Update:
        """A private note emits no event: it stays in this service."""
        self._refuse_when_complete()
        update = Update(labour_id=self.id, kind=kind, text=text, at=at)
        match kind:
            case UpdateKind.ANNOUNCEMENT:
                self._announce(text, at)
            case UpdateKind.STATUS:
                self.record(events.LabourStatusPosted(labour_id=self.id, update_id=update.id, text=text), at)
            case UpdateKind.PRIVATE:
                pass
        return update

    def remove_update(self, update: Update, at: datetime) -> None:
        match update.kind:
            case UpdateKind.ANNOUNCEMENT:
                raise errors.AnnouncementSent(self.id)
            case UpdateKind.STATUS:
                self.record(events.LabourStatusRemoved(labour_id=self.id, update_id=update.id), at)
            case UpdateKind.PRIVATE:
                pass

    # Invites and subscribers

    def invite(self, *, token: str, expires_at: datetime, at: datetime) -> Invite:
        self._refuse_when_complete()
        if len(self.invites) >= INVITE_LIMIT:
            raise errors.TooMany(self.id, "invites", INVITE_LIMIT, "Share an invite that is still valid.")
        if sum(invite.is_valid(at) for invite in self.invites) >= VALID_INVITE_LIMIT:
            raise errors.TooMany(self.id, "valid-invites", VALID_INVITE_LIMIT, "Revoke one first, or share it.")
        invite = Invite(token=token, expires_at=expires_at, at=at)
        self.invites.append(invite)
        self.record(events.InviteCreated(labour_id=self.id, invite_id=invite.id, expires_at=expires_at), at)
        return invite

    def revoke_invite(self, invite_id: UUID, at: datetime) -> None:
        invite = next((one for one in self.invites if one.id == invite_id and one.revoked_at is None), None)
        if invite is None:
            raise errors.InviteInvalid(self.id)
        invite.revoked_at = at
        self.record(events.InviteRevoked(labour_id=self.id, invite_id=invite_id), at)

    def request(
        self, *, token: str, user_id: str, name: str, phone: str, at: datetime, channel: Channel = Channel.SMS
    ) -> Subscriber:
        """Only a person who holds a valid invite and is not blocked may learn that the labour is complete."""
        if not any(invite.admits(token, at) for invite in self.invites):
            raise errors.InviteInvalid(self.id)
        self._subscriber_list.refuse_blocked(user_id, phone)
        self._refuse_when_complete()
        change = self._subscriber_list.request(user_id=user_id, name=name, phone=phone, channel=channel, at=at)
        return self._record_change(change, at)

    def subscribe(self, *, name: str, phone: str, at: datetime) -> Subscriber:
        """The mother adds the person herself; they are approved at once."""
        self._refuse_when_complete()
        return self._record_change(self._subscriber_list.add(name=name, phone=phone, at=at), at)

    def approve(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        self._refuse_when_complete()
        return self._record_change(self._subscriber_list.approve(subscriber_id), at)

    # The next five methods stay allowed when the labour is complete: a subscriber can always be removed.

    def unsubscribe(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        return self._record_change(self._subscriber_list.end(subscriber_id, SubscriberState.REMOVED), at)

    def leave(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        return self._record_change(self._subscriber_list.end(subscriber_id, SubscriberState.LEFT), at)

    def block(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        return self._record_change(self._subscriber_list.block(subscriber_id), at)

    def unblock(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        return self._record_change(self._subscriber_list.unblock(subscriber_id), at)

    def change_role(self, subscriber_id: UUID, role: Role, at: datetime) -> Subscriber:
        return self._record_change(self._subscriber_list.change_role(subscriber_id, role), at)

    @property
    def _subscriber_list(self) -> SubscriberList:
        return SubscriberList(
            self.id, self.subscribers, roster_version=self.roster_version, mother_name=self.mother_name
        )

    def _record_change(self, change: Change, at: datetime) -> Subscriber:
        subscriber, happened = change
        for event in happened:
            if isinstance(event, events.SubscriberAdded | events.SubscriberRemoved):
                self.roster_version = event.roster_version
            self.record(event, at)
        return subscriber

    def _announce(self, text: str, at: datetime) -> None:
        if self.announcements >= ANNOUNCEMENT_LIMIT:
            raise errors.TooMany(self.id, "announcements", ANNOUNCEMENT_LIMIT, "Post a status instead.")
        wait = self.announced_at + cooldown_after(self.announcements) - at if self.announced_at else timedelta(0)
        if wait > timedelta(0):
            raise errors.TooSoon(self.id, wait)
        self.announced_at, self.announcements = at, self.announcements + 1
        roster = self.roster_version
        self.record(
            events.LabourAnnounced(labour_id=self.id, roster_version=roster, mother_name=self.mother_name, text=text),
            at,
        )

    def _refuse_when_complete(self) -> None:
        if self.phase is Phase.COMPLETE:
            raise errors.LabourAlreadyCompleted(self.id)

    def _contraction(self, contraction_id: UUID) -> Contraction:
        for contraction in self.contractions:
            if contraction.id == contraction_id:
                return contraction
        raise errors.NoSuchContraction(self.id, contraction_id)

    def _correct(self, contraction: Contraction, wanted: Contraction, now: datetime) -> None:
        """Leaves the contraction unchanged if the times of `wanted` are impossible."""
        self._check_times(wanted, now, instead_of=contraction)
        contraction.started_at, contraction.ended_at = wanted.started_at, wanted.ended_at
        contraction.intensity = wanted.intensity

    def _check_times(self, wanted: Contraction, now: datetime, instead_of: Contraction | None = None) -> None:
        others = (one for one in self.contractions if one is not instead_of)
        if problem := problem_with_times(wanted, others, now):
            raise errors.ImpossibleTimes(self.id, problem)

    def _advance(self, phase: Phase, at: datetime) -> None:
        """Enter a later phase. Emits no event if the labour has already reached `phase`."""
        if self.phase.is_before(phase):
            previous, self.phase = self.phase, phase
            self.record(events.LabourPhaseChanged(labour_id=self.id, phase=phase, previous=previous, changed_at=at), at)
