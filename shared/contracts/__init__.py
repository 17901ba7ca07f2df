"""The events both services agree on.

An event type is a name, a version and a frozen struct. Adding an optional field keeps the version; anything else is a new
version under the same name. Consumers ignore fields they do not know, so a producer may always be newer than its readers.
The JSON Schemas in `schemas/` are what was published: a test fails when a struct no longer says the same.
"""

from contracts.events import (
    ContractionCorrected,
    ContractionDeleted,
    ContractionEnded,
    ContractionStarted,
    Event,
    InviteCreated,
    InviteRevoked,
    LabourAnnounced,
    LabourBegun,
    LabourCompleted,
    LabourPhaseChanged,
    LabourPlanned,
    LabourStatusPosted,
    LabourStatusRemoved,
    NotificationDelivered,
    NotificationFailed,
    NotificationSent,
    SubscriberAdded,
    SubscriberBlocked,
    SubscriberRemoved,
    SubscriberRequested,
    SubscriberRoleChanged,
    SubscriberUnblocked,
    SubscriberWithdrawn,
)
from contracts.registry import EVENTS, UnknownEvent, WrongSchema, decode, json_schema

__all__ = [
    "EVENTS",
    "ContractionCorrected",
    "ContractionDeleted",
    "ContractionEnded",
    "ContractionStarted",
    "Event",
    "InviteCreated",
    "InviteRevoked",
    "LabourAnnounced",
    "LabourBegun",
    "LabourCompleted",
    "LabourPhaseChanged",
    "LabourPlanned",
    "LabourStatusPosted",
    "LabourStatusRemoved",
    "NotificationDelivered",
    "NotificationFailed",
    "NotificationSent",
    "SubscriberAdded",
    "SubscriberBlocked",
    "SubscriberRemoved",
    "SubscriberRequested",
    "SubscriberRoleChanged",
    "SubscriberUnblocked",
    "SubscriberWithdrawn",
    "UnknownEvent",
    "WrongSchema",
    "decode",
    "json_schema",
]
