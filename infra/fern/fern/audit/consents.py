"""Consent in the audit: no number is texted without it, each is asked once, and only a number whose question may have arrived is
waited for.

An answer and what it does to the messages are one transaction, so one statement never sees the one without the other.
"""

from fern.audit.run import AuditRun

# Of the messages that were made while consent was required, those that went out before the first YES.
_WITHOUT_CONSENT = """
    SELECT id, event_id FROM notification LEFT JOIN consent USING (phone)
    WHERE consent_required AND event_type <> 'consent.requested' AND sent_at IS NOT NULL
        AND (agreed_at IS NULL OR sending_at < agreed_at)
"""

# A message that was taken before the STOP was committed may still go out. A minute is much longer than that takes.
_AFTER_STOP = """
    SELECT id, event_id FROM notification JOIN consent USING (phone)
    WHERE consent.state = 'REFUSED' AND sent_at IS NOT NULL AND sending_at > answered_at + interval '1 minute'
"""

_ASKED_AGAIN = """
    SELECT id, event_id FROM (
        SELECT id, event_id, created_at, lag(created_at) OVER mine AS before, lag(state) OVER mine AS end_of_before
        FROM notification WHERE event_type = 'consent.requested'
        WINDOW mine AS (PARTITION BY phone ORDER BY created_at)) AS question
    WHERE created_at < before + CASE WHEN end_of_before IN ('FAILED', 'UNDELIVERED') THEN interval '1 day'
        ELSE interval '30 days' END
"""

_WAITING = """
    SELECT id, event_id, consent.state AS consent, (
        SELECT question.state FROM notification AS question
        WHERE question.phone = waiting.phone AND question.event_type = 'consent.requested'
        ORDER BY created_at DESC LIMIT 1) AS question
    FROM notification AS waiting LEFT JOIN consent USING (phone) WHERE waiting.state = 'AWAITING_CONSENT'
"""


async def judge_consents(run: AuditRun) -> None:
    ledger, report = run.databases["notification"], run.report
    for row in await ledger.fetch(_WITHOUT_CONSENT):
        what = f"Message {row['id']} went out before the owner of the number had agreed."
        report.add("unexplained", row["event_id"], "texts", what)
    for row in await ledger.fetch(_AFTER_STOP):
        what = f"Message {row['id']} went out after the owner of the number had said STOP."
        report.add("unexplained", row["event_id"], "texts", what)
    for row in await ledger.fetch(_ASKED_AGAIN):
        what = f"Message {row['id']} asks a number for consent that was asked not long before."
        report.add("duplicated", row["event_id"], "texts", what)
    for row in await ledger.fetch(_WAITING):
        report.awaiting_consent += 1
        if row["question"] is None:
            what = f"Message {row['id']} waits for a consent, and the number was never asked for it."
            report.add("lost", row["event_id"], "texts", what)
        elif row["consent"] != "ASKED":
            what = f"Message {row['id']} waits for a consent that is {row['consent']} already."
            report.add("lost", row["event_id"], "texts", what)
        elif row["question"] in ("FAILED", "UNDELIVERED"):
            what = (
                f"Message {row['id']} waits for a consent, and the question for it did not arrive. A day after the question the "
                "next message to the number asks again. If the number is wrong, only the mother can correct it."
            )
            report.add("stuck", row["event_id"], "texts", what, f"fern sms ls --state {row['question']}")
