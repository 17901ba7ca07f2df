"""Access tokens for the Labour API of the local system. In production an identity provider issues them."""

import time

import jwt

from fern.settings import TOKEN_SECRET


def make_token(name: str, hours: float = 12) -> str:
    now = int(time.time())
    claims = {"sub": name, "aud": "fernlabour", "iat": now, "exp": now + int(hours * 3600)}
    return jwt.encode(claims, TOKEN_SECRET, algorithm="HS256")
