"""A first labour of Ada's with two people in it, so that the pages are not empty. Nothing happens if she has one yet."""

import httpx

from fern.settings import Settings
from fern.tokens import make_token

# Numbers kept free for fiction: they belong to nobody.
PEOPLE = {"Grace": "+12025550111", "Alan": "+12025550122"}


def seed(settings: Settings) -> bool:
    """True if there was nothing yet and now there is."""
    ada = {"Authorization": f"Bearer {make_token('ada')}"}
    with httpx.Client(base_url=settings.url("labour-api"), headers=ada, timeout=10, trust_env=False) as api:
        labours = api.get("/api/v1/labours", params={"limit": 1}).raise_for_status().json()["items"]
        if labours:
            return False
        labour = api.post("/api/v1/labours", json={"mother_name": "Ada"}).raise_for_status().json()
        for name, phone in PEOPLE.items():
            person = {"name": name, "phone": phone}
            api.post(f"/api/v1/labours/{labour['id']}/subscribers", json=person).raise_for_status()
    return True
