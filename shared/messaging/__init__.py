"""The machinery that carries an event from one service's transaction into another's, with the effect of once.

Read it in the order an event travels: aggregate, unit_of_work, outbox, relay, pubsub, consumer, claims.
It knows no event by name: what is sent is the business of `contracts` and the services.
"""
