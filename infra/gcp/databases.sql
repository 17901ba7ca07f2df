-- Run by the job `fern-SERVICE-roles`, in the database of one service, before the first migration and after a process was added:
--   psql -v service=labour -v owners=fern-labour-migrations@my-project.iam -v members=fern-labour-api@my-project.iam,…
--     -v readers=fern-audit@my-project.iam -f databases.sql
-- Two roles without a login. `labour_owner` owns the database and its tables; only the migrations may act as it. Every process of the
-- service logs in as its own account and acts as `labour`, which reads and writes rows and nothing else: the migrations give it that
-- right (servicekit/migrations.py). The accounts of the other service cannot open the database.
SET ROLE NONE; -- from the second run on, a session here begins as `labour`
SELECT :'service' || '_owner' AS owner \gset

SELECT format('CREATE ROLE %I NOLOGIN', role) FROM unnest(ARRAY[:'service', :'owner']) AS role
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) \gexec

-- To give a database away one has to be a member of the role that gets it.
GRANT :"service", :"owner" TO CURRENT_USER;
REVOKE ALL ON DATABASE :"service" FROM PUBLIC;
ALTER DATABASE :"service" OWNER TO :"owner";
ALTER DATABASE :"service" SET role = :'service';

-- A database of a release without an owner: the tables change hands, and the processes keep the right to read and write.
BEGIN;
REASSIGN OWNED BY :"service" TO :"owner";
SET LOCAL ROLE :"owner";
GRANT CONNECT ON DATABASE :"service" TO :"service";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO :"service";
COMMIT;

SELECT format('GRANT %I TO %I', :'service', member)
FROM unnest(string_to_array(:'members', ',')) AS member \gexec

SELECT format(command, :'service', :'owner', account)
FROM unnest(string_to_array(:'owners', ',')) AS account,
    unnest(ARRAY['GRANT %2$I TO %3$I', 'REVOKE %1$I FROM %3$I']) AS command \gexec

-- A reader is no member: it sees every table, those of later migrations too, and changes none.
SELECT format(command, reader, :'service', :'owner')
FROM unnest(string_to_array(:'readers', ',')) AS reader,
    unnest(ARRAY[
        'GRANT CONNECT ON DATABASE %2$I TO %1$I',
        'GRANT USAGE ON SCHEMA public TO %1$I',
        'GRANT SELECT ON ALL TABLES IN SCHEMA public TO %1$I',
        'ALTER DEFAULT PRIVILEGES FOR ROLE %3$I IN SCHEMA public GRANT SELECT ON TABLES TO %1$I'
    ]) AS command \gexec
