"""The SMS sandbox: a stand-in for Twilio's Messages API that shows the phones and can fail on purpose.

Follow one text through it: `twilio_api` takes the request, `validation` checks it, `store` keeps it, the carrier in `sandbox`
moves it from queued to delivered, `courier` reports each status by a signed callback, `sandbox_api` shows it and lets the phone
reply, and `faults` decides what goes wrong. `server` runs it all.
"""

from sms_sandbox.server import Address, running

__all__ = ["Address", "running"]
