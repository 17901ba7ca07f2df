"""The SMS sandbox: a stand-in for Twilio's Messages API that shows the phones and can fail on purpose.

Follow one text through it: `twilio_api` takes the request, `store` keeps it, `carrier` moves it from queued to
delivered, `courier` tells the sender by signed callbacks, `phones` shows it and lets the phone reply, and `faults` decides
what goes wrong. `server` runs it all.
"""

from fern.sms.server import Address, running

__all__ = ["Address", "running"]
