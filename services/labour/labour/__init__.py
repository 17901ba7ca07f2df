"""The Labour service: plans, begins and completes labours, and keeps the list of people who are notified."""
