"""How each subscription is delivered: pulled, pushed, or pulled with exactly-once delivery.

infra/topology.toml declares it, for one subscription or for all of a consumer. `fern topology set` overrides it locally.
"""

import tomllib
from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from pathlib import Path
from typing import Any

from fern.errors import TopologyInvalid

FILE = Path(__file__).resolve().parents[2] / "topology.toml"
PUSH_ENDPOINTS = {
    "notification": "notification-api"
}  # the consumers that can be pushed to, and the process that receives
_OPTIONS = {"delivery", "exactly_once"}


class Delivery(StrEnum):
    PULL = "pull"
    PUSH = "push"
    EXACTLY_ONCE = "exactly-once"

    @property
    def is_pushed(self) -> bool:
        return self is Delivery.PUSH


def deliveries(content: Mapping[str, Any], overrides: Mapping[str, str]) -> dict[str, Delivery]:
    """The delivery of every subscription of a consumer. Raises `TopologyInvalid` for a declaration that cannot be applied.

    `content` is that of topology.toml. An override, by consumer, replaces what is declared for all its subscriptions.
    """
    topics: Mapping[str, list[str]] = content["topics"]
    by_consumer, by_subscription = content.get("consumers", {}), content.get("subscriptions", {})
    names = {f"{consumer}.{topic}": consumer for topic, consumers in topics.items() for consumer in consumers}
    for given in (by_consumer, overrides):
        _check_names("consumer", given, set(names.values()))
    _check_names("subscription", by_subscription, set(names))
    found = dict[str, Delivery]()
    for name, consumer in names.items():
        if consumer in overrides:
            found[name] = _known(name, overrides[consumer], [*Delivery])
        else:
            default = {key: content["subscription"][key] for key in _OPTIONS if key in content["subscription"]}
            found[name] = _declared(name, {**default, **by_consumer.get(consumer, {}), **by_subscription.get(name, {})})
        if found[name].is_pushed and consumer not in PUSH_ENDPOINTS:
            those = ", ".join(PUSH_ENDPOINTS)
            raise TopologyInvalid(f"{name} cannot be pushed: {consumer} has no push endpoint, only {those} has one.")
    return found


def delivered(overrides: Mapping[str, str]) -> dict[str, Delivery]:
    """The delivery of every subscription of a consumer, as infra/topology.toml and these overrides have it."""
    return deliveries(tomllib.loads(FILE.read_text()), overrides)


def is_pushed_entirely(consumer: str, overrides: Mapping[str, str]) -> bool:
    """Whether the consumer has nothing to pull."""
    of_consumer = [delivery for name, delivery in delivered(overrides).items() if name.startswith(f"{consumer}.")]
    return all(delivery.is_pushed for delivery in of_consumer)


def _declared(name: str, options: Mapping[str, Any]) -> Delivery:
    if unknown := options.keys() - _OPTIONS:
        raise TopologyInvalid(
            f"topology.toml: {name} has the unknown option {min(unknown)}; there are delivery and exactly_once."
        )
    exactly_once = options.get("exactly_once", False)
    if not isinstance(exactly_once, bool):
        raise TopologyInvalid(f"topology.toml: exactly_once of {name} is {exactly_once!r}; it must be true or false.")
    delivery = _known(name, options.get("delivery", "pull"), ["pull", "push"])
    if delivery.is_pushed and exactly_once:
        what = f"topology.toml: {name} is pushed, and Pub/Sub has exactly-once delivery for pull only."
        raise TopologyInvalid(f'{what} Write delivery = "pull" or exactly_once = false.')
    return Delivery.EXACTLY_ONCE if exactly_once else delivery


def _known(name: str, value: object, allowed: Sequence[str]) -> Delivery:
    if value not in allowed:
        raise TopologyInvalid(f"topology.toml: the delivery of {name} is {value!r}; it must be {' or '.join(allowed)}.")
    return Delivery(str(value))


def _check_names(kind: str, given: Mapping[str, Any], known: Set[str]) -> None:
    if unknown := given.keys() - known:
        those = ", ".join(sorted(known))
        raise TopologyInvalid(f"there is no {kind} {min(unknown)} in topology.toml; there are {those}.")
