-- The tables of the limits: as narrow as the work of a stage allows.
CREATE TABLE labour (
    id uuid PRIMARY KEY, mother_id text NOT NULL, mother_name text NOT NULL, phase text NOT NULL,
    completed_at timestamptz, notes text, roster_version integer NOT NULL, version integer NOT NULL);
CREATE INDEX ON labour (mother_id);
CREATE TABLE subscriber (
    id uuid PRIMARY KEY, labour_id uuid NOT NULL, name text NOT NULL, phone text NOT NULL, state text NOT NULL);
CREATE INDEX ON subscriber (labour_id);
CREATE TABLE idempotency_key (
    scope text, key text, fingerprint bytea NOT NULL, status smallint NOT NULL, body bytea NOT NULL,
    expires_at timestamptz NOT NULL, PRIMARY KEY (scope, key));
CREATE TABLE event (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL UNIQUE, topic text NOT NULL,
    ordering_key text NOT NULL, attributes jsonb NOT NULL, payload text NOT NULL, occurred_at timestamptz NOT NULL);
CREATE TABLE pending (position bigint PRIMARY KEY);
CREATE TABLE published (position bigint PRIMARY KEY, at timestamptz NOT NULL);
CREATE TABLE claim (event_id uuid PRIMARY KEY);
CREATE TABLE member (labour_id uuid, person_id uuid, phone text NOT NULL, PRIMARY KEY (labour_id, person_id));
CREATE TABLE notification (
    event_id uuid, person_id uuid, phone text NOT NULL, body text NOT NULL, PRIMARY KEY (event_id, person_id));
