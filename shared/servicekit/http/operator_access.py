"""Who may call the operators' routes: named tokens of two scopes, and a listener of their own. `operator_guard` checks the
tokens.

OPERATOR_READ_TOKENS       name:secret pairs that may read, separated by commas
OPERATOR_WRITE_TOKENS      the same for those that may change something as well
LABOUR_OPERATORS_HOST, NOTIFICATION_OPERATORS_HOST   the address of the listener (127.0.0.1)
LABOUR_OPERATORS_PORT, NOTIFICATION_OPERATORS_PORT   its port (8407, 8408); 0 for a process without this listener,
                           which needs no tokens
OPERATIONS_TOKEN           refused: the two lists of tokens have replaced it

The name says in the security log who made a change. To rotate a secret, add a second pair, change the clients, remove the first.
"""

import re
from dataclasses import dataclass, field
from hashlib import sha256

from servicekit.settings import Environment

READ_TOKENS, WRITE_TOKENS = "OPERATOR_READ_TOKENS", "OPERATOR_WRITE_TOKENS"
LOCAL_READ, LOCAL_WRITE = "local-operator-read", "local-operator-write"  # used in local mode only
SHORTEST_SECRET = 32  # characters, outside local mode

_PAIR = re.compile(r"([a-z0-9][a-z0-9-]{0,39}):([!-+\--~]+)")  # visible ASCII without a comma


@dataclass(frozen=True, slots=True)
class OperatorToken:
    operator: str
    may_write: bool
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    host: str
    port: int
    tokens: tuple[OperatorToken, ...]

    @classmethod
    def load(cls, environment: Environment, service: str, *, port: int) -> "OperatorSettings":
        if environment.optional("OPERATIONS_TOKEN"):
            environment.refuse(f"OPERATIONS_TOKEN was replaced: unset it, and set {READ_TOKENS} and {WRITE_TOKENS}")
        host = environment.optional(f"{service}_OPERATORS_HOST", "127.0.0.1")
        port = environment.number(f"{service}_OPERATORS_PORT", port, int)
        if port == 0:
            return cls(host, port, tokens=())
        reading = _load_tokens(environment, READ_TOKENS, LOCAL_READ, may_write=False)
        writing = _load_tokens(environment, WRITE_TOKENS, LOCAL_WRITE, may_write=True)
        tokens = (*reading, *writing)
        if len({token.digest for token in tokens}) < len(tokens):
            environment.refuse(f"{READ_TOKENS} and {WRITE_TOKENS} have the same secret twice: make one for each name")
        return cls(host, port, tokens)


def _load_tokens(environment: Environment, name: str, local: str, *, may_write: bool) -> list[OperatorToken]:
    """Reports what is wrong without repeating a secret."""
    tokens = []
    pairs = environment.text(name, local=f"local:{local}", secret=True).split(",")
    for pair in filter(None, map(str.strip, pairs)):
        match = _PAIR.fullmatch(pair)
        if match is None:
            environment.refuse(
                f"{name} takes name:secret pairs, separated by commas; a name has lower-case letters, digits and "
                f"hyphens: export {name}=grace:$(openssl rand -hex 32)"
            )
            continue
        operator, secret = match.groups()
        if not environment.local and secret in (LOCAL_READ, LOCAL_WRITE):
            environment.refuse(f"{name} has its development value: set a real one")
        elif not environment.local and len(secret) < SHORTEST_SECRET:
            environment.refuse(
                f"{name}: the secret of {operator} has fewer than {SHORTEST_SECRET} characters: openssl rand -hex 32"
            )
        tokens.append(OperatorToken(operator, may_write, digest_of(secret.encode())))
    return tokens


def digest_of(secret: bytes) -> bytes:
    return sha256(secret).digest()
