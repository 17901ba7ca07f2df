"""The Notification service: from an event to one SMS for each person it concerns."""
